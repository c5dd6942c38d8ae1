#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace co2::train {

/// A part of a file: where it lies in memory and how long it is.
using Bytes = std::string_view;

/// Puts `contents` there as a whole or not at all: a temporary file in the same folder, flushed to disk, then renamed.
/// Throws DataError.
void write_atomically(const std::filesystem::path& path, Bytes contents);

/// The same for contents that are made piece by piece: `produce` is given a function that appends.
void write_atomically(const std::filesystem::path& path,
                      const std::function<void(const std::function<void(Bytes)>&)>& produce);

/// The whole file, or pipe to its end. Throws DataError.
std::string read_file(const std::filesystem::path& path);

/// Creates the folder if need be and proves that a file can be written there. Throws DataError.
void ensure_writable(const std::filesystem::path& folder);

/// Makes a folder that was not there before: `wanted`, or with -2, -3, … after its name. Two programs that want the
/// same one at the same time get one each. Throws DataError.
std::filesystem::path claim_folder(const std::filesystem::path& wanted);

/// A fresh folder inside `parent`, removed with everything in it at the end of the scope.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace co2::train
