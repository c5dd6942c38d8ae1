#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace co2::checkpoint {

struct Dtype {
  std::string_view name;  ///< the format's: "F32"
  std::uint64_t bytes;    ///< per element
};

/// Those that we read and write.
std::span<const Dtype> dtypes();

/// What the header says of one tensor.
struct TensorInfo {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< of its bytes, counted from the beginning of the data
  std::uint64_t end = 0;

  bool operator==(const TensorInfo&) const = default;
};

/// The beginning of a safetensors file: eight bytes that say how long the JSON text after them is, and that text. The
/// rest of the file is data. Knows nothing of tensors themselves.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;

  bool operator==(const SafetensorsHeader&) const = default;
};

constexpr std::uint64_t kLengthBytes = 8;

/// How long the text is, from the first eight bytes of a file. Throws DataError that names `file` if the file can't
/// have that much, or nobody should.
std::uint64_t header_length(std::string_view first_bytes, std::uint64_t file_bytes, const std::string& file);

/// The text, as anybody may have written it. Throws DataError that names `file` and the tensor unless every dtype is
/// known, every shape possible, and the tensors cover each of `data_bytes` exactly once. Tensors come in the text's
/// order.
///
/// Not asked for: that a tensor begins at a multiple of its elements' size. Old writers did not see to it, and nobody
/// who copies the bytes needs it.
SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_bytes, const std::string& file);

/// Gives every tensor its place: in the order of their elements' size, largest first, so that each begins at a multiple
/// of it without gaps, which the format forbids. Throws DataError that names `file` for a dtype that we can't write, or
/// a shape that is too large.
void place(SafetensorsHeader& header, const std::string& file);

/// The indices of tensors in the order of their data.
std::vector<std::size_t> in_data_order(const SafetensorsHeader& header);

/// Length and text, filled up with spaces so that the data begin at a multiple of eight bytes. Throws DataError that
/// names `file` for a name that occurs twice or is not UTF-8.
std::string header_bytes(const SafetensorsHeader& header, const std::string& file);

}  // namespace co2::checkpoint
