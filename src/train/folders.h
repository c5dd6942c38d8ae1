#pragma once

#include <filesystem>

namespace co2::train {

/// Creates the folder if need be and proves that a file can be written there. Throws DataError.
void ensure_writable(const std::filesystem::path& folder);

/// Makes a folder that was not there before: `wanted`, or with -2, -3, … after its name. Two programs that want the
/// same one at the same time get one each. Throws DataError.
std::filesystem::path claim_folder(const std::filesystem::path& wanted);

}  // namespace co2::train
