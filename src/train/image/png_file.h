#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

namespace co2::train {

/// As uint8 [height, width, 3], whatever kind of PNG it is. Throws DataError.
at::Tensor read_png(const std::filesystem::path& path);

/// `pixels`: uint8 [height, width, 3]. As a whole or not at all. Throws DataError.
void write_png(const std::filesystem::path& path, const at::Tensor& pixels);

}  // namespace co2::train
