#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file_entry.h"

namespace co2::checkpoint {

/// What one worker saves. Names and texts are UTF-8; a name may occur once in each of the four.
struct Part {
  std::vector<std::pair<std::string, at::Tensor>> tensors;  ///< in an order that is kept
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> numbers;  ///< kept bit for bit, NaN and infinity too
  std::map<std::string, std::string> texts;
};

/// Writes a worker's file (worker_file() of names.h) into a folder, which is there. On disk when it returns. Throws
/// DataError; then there is no such file, or the one that was there before.
FileEntry write_part(const std::filesystem::path& folder, int worker, const Part& part);

/// Reads it. Throws DataError that names the file unless it is, to the last bit, what was written.
Part read_part(const std::filesystem::path& file, const FileEntry& entry);

}  // namespace co2::checkpoint
