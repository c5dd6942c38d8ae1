#pragma once

#include <filesystem>

#include "train/gpt/gpt.h"
#include "train/task_type.h"

namespace co2::train {

/// Writes model.safetensors and config.json, which transformers.GPT2LMHeadModel.from_pretrained(folder) loads. `show`
/// has the model's values, of which no more than one parameter's are needed at a time.
void export_gpt(const Gpt& model, const ShowParameters& show, const std::filesystem::path& folder);

}  // namespace co2::train
