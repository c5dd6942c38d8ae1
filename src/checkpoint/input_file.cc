#include "checkpoint/input_file.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace co2::checkpoint {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  if (errno == ENOENT) throw DataError(fmt::format("{} is missing", path.string()));
  throw DataError(fmt::format("can't read {}: {}", path.string(), std::strerror(errno)));
}

}  // namespace

// O_NONBLOCK: to open a pipe that nobody writes to would take for ever.
InputFile::InputFile(const std::filesystem::path& path)
    : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (file_.get() < 0 || fstat(file_.get(), &status) != 0) fail(path);
  if (!S_ISREG(status.st_mode)) throw DataError(fmt::format("can't read {}: it is not a regular file", path.string()));
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read(std::uint64_t from, std::uint64_t bytes, void* to) const {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const auto count = pread(file_.get(), at, bytes, static_cast<off_t>(from));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path_);
    if (count == 0) throw DataError(fmt::format("{} ends at byte {}, while it is read", path_.string(), from));
    at += count;
    from += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::uint64_t>(count);
  }
}

std::string InputFile::read(std::uint64_t from, std::uint64_t bytes) const {
  std::string result(bytes, '\0');
  read(from, bytes, result.data());
  return result;
}

}  // namespace co2::checkpoint
