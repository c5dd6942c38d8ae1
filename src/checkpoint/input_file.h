#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/descriptor.h"

namespace co2::checkpoint {

/// A regular file that is read at places of one's choice. Its size is what it was when it was opened.
class InputFile {
 public:
  /// Throws DataError, also for what is no regular file: a pipe would be waited for, a folder can't be read.
  explicit InputFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }

  /// Exactly that many bytes. Throws DataError, also if the file has become shorter meanwhile.
  void read(std::uint64_t from, std::uint64_t bytes, void* to) const;
  std::string read(std::uint64_t from, std::uint64_t bytes) const;

 private:
  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace co2::checkpoint
