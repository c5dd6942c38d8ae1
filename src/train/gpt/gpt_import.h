#pragma once

#include <filesystem>

#include "train/gpt/gpt.h"

namespace co2::train {

/// The weights in a folder that export_gpt() or transformers.GPT2LMHeadModel.save_pretrained() wrote: one file, or
/// several with an index. Any floating-point dtype. Each is read when it is asked for; what is missing, of another
/// shape, or has no place in this model is named by a DataError before.
FirstValues gpt_weights(const Gpt& model, const std::filesystem::path& folder);

}  // namespace co2::train
