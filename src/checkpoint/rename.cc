#include "checkpoint/rename.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/files.h"

namespace co2::checkpoint {
namespace fs = std::filesystem;
namespace {

/// False where names can't be swapped: NFS, an old kernel.
bool swap_names(const fs::path& one, const fs::path& other) {
  if (renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
  throw DataError(fmt::format("can't rename {} to {}: {}", one.string(), other.string(), std::strerror(errno)));
}

}  // namespace

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

void rename_folder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  throw DataError(fmt::format("can't rename {} to {}: {}", from.string(), to.string(), std::strerror(errno)));
}

void put_in_place(const fs::path& fresh, const fs::path& place, const fs::path& old, Replace replace) {
  const auto folder = place.parent_path();
  if (!is_there(place)) {
    rename_folder(fresh, place);
  } else if (replace == Replace::kStepAside || !swap_names(fresh, place)) {
    rename_folder(place, old);
    sync_folder(folder);  // before the other: after a power failure, one of them must be there
    rename_folder(fresh, place);
  }
  sync_folder(folder);
}

}  // namespace co2::checkpoint
