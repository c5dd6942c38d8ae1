#include "base/folder_lock.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/files.h"

namespace co2 {

namespace {

using std::chrono::steady_clock;

std::string this_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", getpid(), host.data());
}

/// Whoever took it may not have written its name yet.
std::string holder(const std::filesystem::path& path) {
  try {
    const std::string name = read_file(path);
    return name.empty() ? name : ", " + name;
  } catch (const DataError&) {
    return {};
  }
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder, const std::string& busy, const std::string& advice,
                       std::chrono::milliseconds patience)
    : path_(folder / kFile) {
  const auto deadline = steady_clock::now() + patience;
  while (!try_to_take()) {
    if (steady_clock::now() >= deadline) {
      throw DataError(fmt::format("{}{}: {}", busy, holder(path_), advice));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

FolderLock::~FolderLock() {
  // A folder that was removed may be there again, with somebody else's.
  if (file_.get() >= 0 && is_at(file_.get(), path_)) unlink(path_.c_str());
}

bool FolderLock::try_to_take() {
  while (true) {
    Descriptor file(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (file.get() < 0) throw DataError(fmt::format("can't write {}: {}", path_.string(), std::strerror(errno)));
    // Some file systems have no locks: there everything is as it would be without one.
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
    if (!is_at(file.get(), path_)) continue;  // its holder has removed it since we opened it
    const std::string name = this_process();
    // A full disk takes no name, and the lock holds without one.
    if (ftruncate(file.get(), 0) != 0 || pwrite(file.get(), name.data(), name.size(), 0) < 0) errno = 0;
    file_ = std::move(file);
    return true;
  }
}

}  // namespace co2
