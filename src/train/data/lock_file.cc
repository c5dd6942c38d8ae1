#include "train/data/lock_file.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

namespace co2::train {
namespace {

constexpr std::size_t kLongestWord = 2000;

bool not_before(const timespec& a, const timespec& b) {
  return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec >= b.tv_nsec);
}

}  // namespace

LockFile::LockFile(const std::filesystem::path& path, std::chrono::seconds timeout,
                   const std::function<bool()>& cancelled) {
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw DataError(fmt::format("can't open {}: {}", path.string(), std::strerror(errno)));
  const auto fail = [&](const std::string& why) {
    close(descriptor_);
    throw DataError(fmt::format("can't lock {}: {}", path.string(), why));
  };
  // File times come from the kernel's coarse clock: a word left after this moment has a time that is not before it.
  timespec began{};
  clock_gettime(CLOCK_REALTIME_COARSE, &began);
  bool waited = false;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) fail(std::strerror(errno));
    if (cancelled && cancelled()) fail("interrupted");
    if (std::chrono::steady_clock::now() > deadline) {
      fail(fmt::format("another process has held it for {} s", timeout.count()));
    }
    waited = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  struct stat status {};
  if (waited && fstat(descriptor_, &status) == 0 && not_before(status.st_mtim, began)) {
    word_.resize(kLongestWord);
    const auto length = pread(descriptor_, word_.data(), word_.size(), 0);
    word_.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  }
}

LockFile::~LockFile() { close(descriptor_); }

void LockFile::leave(const std::string& word) {
  const auto text = word.substr(0, kLongestWord);
  if (ftruncate(descriptor_, 0) != 0 || pwrite(descriptor_, text.data(), text.size(), 0) < 0) {
    throw DataError(fmt::format("can't write a lock file: {}", std::strerror(errno)));
  }
}

}  // namespace co2::train
