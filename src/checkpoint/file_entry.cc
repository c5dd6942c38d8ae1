#include "checkpoint/file_entry.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/checksum.h"
#include "checkpoint/input_file.h"

namespace co2::checkpoint {

void check_size(const InputFile& file, const FileEntry& entry) {
  const auto bytes = static_cast<std::uint64_t>(entry.bytes);
  if (file.size() < bytes) {
    throw DataError(fmt::format("{} is truncated: it has {} of {} bytes", file.path().string(), file.size(), bytes));
  }
  if (file.size() > bytes) {
    throw DataError(fmt::format("{} is not what was written: it has {} bytes instead of {}", file.path().string(),
                                file.size(), bytes));
  }
}

void check_sum(const InputFile& file, const FileEntry& entry, const std::string& checksum) {
  if (checksum == entry.checksum) return;
  throw DataError(fmt::format("{} is not what was written: its checksum is {} instead of {}", file.path().string(),
                              checksum, entry.checksum));
}

void check_file(const std::filesystem::path& folder, const FileEntry& entry) {
  const InputFile file(folder / entry.name);
  check_size(file, entry);
  constexpr std::uint64_t kAtOnce = 1 << 20;
  std::string piece(std::min(kAtOnce, file.size()), '\0');
  Checksum sum;
  for (std::uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min(kAtOnce, file.size() - at));
    file.read(at, piece.size(), piece.data());
    sum.add(piece);
  }
  check_sum(file, entry, sum.digits());
}

}  // namespace co2::checkpoint
