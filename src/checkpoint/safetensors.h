#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file_entry.h"
#include "checkpoint/input_file.h"
#include "checkpoint/safetensors_header.h"

namespace co2::checkpoint {

/// A safetensors file: named tensors, and free text about them.
struct Safetensors {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::map<std::string, std::string> metadata;
};

/// Writes the file atomically, tensor after tensor, so that no second copy of all of them is ever in memory. Readers
/// get the tensors in this order again. Throws DataError, also for a dtype that safetensors_header.h does not list, a
/// sparse tensor, or a name that occurs twice.
FileEntry write_safetensors(const std::filesystem::path& path, const Safetensors& contents);

/// The same for tensors that are not all there at once: `outline` has their shapes and dtypes, and its tensors need no
/// memory. `show` gives `put` the tensors themselves, one after the other, in the same order (those of larger elements
/// first); all of them, or a DataError follows.
using PutTensor = std::function<void(const std::string& name, const at::Tensor& values)>;
FileEntry write_safetensors(const std::filesystem::path& path, const Safetensors& outline,
                            const std::function<void(const PutTensor& put)>& show);

/// Reads such a file, by whomever it was written. Every field is checked before it is used (parse_header()). Throws
/// DataError that names the file and the tensor.
///
/// With an entry, the file must be what was written: size and checksum are compared in the same pass.
Safetensors read_safetensors(const std::filesystem::path& path, const std::optional<FileEntry>& entry = std::nullopt);

/// A file of which only the header was read, and any tensor can be.
class SafetensorsFile {
 public:
  /// With an entry, the file must be what was written: its size is compared here, its checksum by read_all(). Throws
  /// DataError.
  explicit SafetensorsFile(const std::filesystem::path& path, std::optional<FileEntry> entry = std::nullopt);

  const SafetensorsHeader& header() const { return header_; }
  /// One tensor, and no more of the file than it takes: no checksum is compared. Throws DataError, also if there is
  /// none of that name.
  at::Tensor read(const std::string& name) const;
  Safetensors read_all() const;

 private:
  InputFile file_;
  std::optional<FileEntry> entry_;
  std::string start_;  // length and header, as they are in the file
  SafetensorsHeader header_;
};

}  // namespace co2::checkpoint
