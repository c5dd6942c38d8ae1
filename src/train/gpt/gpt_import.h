#pragma once

#include <filesystem>

#include "train/gpt/gpt.h"

namespace co2::train {

/// Gives the model the weights in a folder that export_gpt() or transformers.GPT2LMHeadModel.save_pretrained() wrote:
/// one file, or several with an index. Any floating-point dtype. Throws DataError that names what is missing, of
/// another shape, or has no place in this model.
void import_gpt(Gpt& model, const std::filesystem::path& folder);

}  // namespace co2::train
