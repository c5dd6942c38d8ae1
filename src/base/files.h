#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace co2 {

/// Puts `contents` there as a whole or not at all: a temporary file in the same folder, flushed to disk, then renamed.
/// Throws DataError.
void write_atomically(const std::filesystem::path& path, std::string_view contents);

/// The same for contents that are made piece by piece: `produce` is given a function that appends.
void write_atomically(const std::filesystem::path& path,
                      const std::function<void(const std::function<void(std::string_view)>&)>& produce);

/// What was made, renamed or removed in a folder is on disk when this returns. Throws DataError.
void sync_folder(const std::filesystem::path& folder);

/// The whole file, or pipe to its end. Throws DataError.
std::string read_file(const std::filesystem::path& path);

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

}  // namespace co2
