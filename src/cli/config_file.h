#pragma once

#include <filesystem>
#include <vector>

#include "cli/train_options.h"

namespace co2::cli {

/// Reads a TOML or JSON file of `key = value`: a name that ends in .toml or .json decides, otherwise the first
/// character. Throws DataError if it can't be read, OptionError with file and line if its syntax is wrong, if it has
/// sections, or if a key is there twice. The names of keys are not looked at.
std::vector<Setting> read_config_file(const std::filesystem::path& path);

/// The options that the run in a folder was started with, or went on with. Throws DataError if there is none.
std::vector<Setting> read_run_config(const std::filesystem::path& run);

}  // namespace co2::cli
