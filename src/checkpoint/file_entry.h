#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace co2::checkpoint {

class InputFile;

/// A file as it was written.
struct FileEntry {
  std::string name;  ///< in its folder
  std::int64_t bytes = 0;
  std::string checksum;  ///< of all its bytes (checksum.h)

  bool operator==(const FileEntry&) const = default;
};

/// Throw DataError that names the file unless it has as many bytes as were written; if what was read of it has another
/// checksum.
void check_size(const InputFile& file, const FileEntry& entry);
void check_sum(const InputFile& file, const FileEntry& entry, const std::string& checksum);

/// Reads the whole file and compares. Throws DataError that names it: missing, truncated, or changed.
void check_file(const std::filesystem::path& folder, const FileEntry& entry);

}  // namespace co2::checkpoint
