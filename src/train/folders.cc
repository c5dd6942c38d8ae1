#include "train/folders.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

namespace co2::train {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail_to_create(const fs::path& folder, const std::error_code& error) {
  throw DataError(
      fmt::format("can't create the folder {}: {}; choose another one with --out", folder.string(), error.message()));
}

}  // namespace

void ensure_writable(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_to_create(folder, error);
  std::string probe = (folder / ".co2-XXXXXX").string();
  const int descriptor = mkostemp(probe.data(), O_CLOEXEC);
  if (descriptor < 0) {
    throw DataError(fmt::format("can't write to the folder {}: {}; choose another one with --out", folder.string(),
                                std::strerror(errno)));
  }
  close(descriptor);
  unlink(probe.c_str());
}

fs::path claim_folder(const fs::path& wanted) {
  std::error_code error;
  if (wanted.has_parent_path()) fs::create_directories(wanted.parent_path(), error);
  if (error) fail_to_create(wanted.parent_path(), error);
  for (int attempt = 1;; ++attempt) {
    const fs::path folder = attempt == 1 ? wanted : fs::path(fmt::format("{}-{}", wanted.string(), attempt));
    if (fs::create_directory(folder, error)) return folder;
    // Whatever else has that name is passed over too; it would be no error for create_directory if it were a folder.
    if (error && error != std::errc::file_exists) fail_to_create(folder, error);
  }
}

}  // namespace co2::train
