#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace co2::train {

/// A safetensors file: named tensors, and free text about them.
struct Safetensors {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::map<std::string, std::string> metadata;
};

/// Writes the file atomically: eight bytes of header length, a JSON header padded with spaces so that the data begin at
/// a multiple of eight bytes, the tensors' bytes in the order given. Dtypes: float64, float32, float16, bfloat16,
/// int64, int32, uint8. Throws DataError, also for an unsupported dtype or a name that occurs twice.
void write_safetensors(const std::filesystem::path& path, const Safetensors& contents);

/// Reads such a file, by whomever it was written. Every field is checked before it is used: the header's length, dtypes
/// and shapes, and that the tensors' ranges cover the data exactly once. Throws DataError that names the file and the
/// tensor. Tensors come in the order of their data.
Safetensors read_safetensors(const std::filesystem::path& path);

}  // namespace co2::train
