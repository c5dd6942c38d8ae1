#pragma once

#include <filesystem>

#include "train/gpt/gpt.h"

namespace co2::train {

/// Writes model.safetensors and config.json, which transformers.GPT2LMHeadModel.from_pretrained(folder) loads.
void export_gpt(const Gpt& model, const std::filesystem::path& folder);

}  // namespace co2::train
