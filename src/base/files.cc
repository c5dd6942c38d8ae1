#include "base/files.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "base/descriptor.h"

namespace co2 {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const char* what, const fs::path& path) {
  throw DataError(fmt::format("can't {} {}: {}", what, path.string(), std::strerror(errno)));
}

/// A file under its temporary name, which disappears unless it is kept.
class Draft {
 public:
  // Process and address together are unlike those of any other draft that exists at the same time.
  explicit Draft(const fs::path& path)
      : path_(path), name_(fmt::format("{}.tmp-{}-{}", path.string(), getpid(), fmt::ptr(this))) {
    descriptor_ = open(name_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail("write", path);
  }
  ~Draft() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!kept_) unlink(name_.c_str());
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  void append(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write", path_);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  void keep() {
    if (fsync(descriptor_) != 0) fail("write", path_);
    const int descriptor = std::exchange(descriptor_, -1);
    if (close(descriptor) != 0 || rename(name_.c_str(), path_.c_str()) != 0) fail("write", path_);
    kept_ = true;
  }

 private:
  fs::path path_;
  std::string name_;
  int descriptor_ = -1;
  bool kept_ = false;
};

}  // namespace

void write_atomically(const fs::path& path, std::string_view contents) {
  write_atomically(path, [&](const auto& append) { append(contents); });
}

void write_atomically(const fs::path& path,
                      const std::function<void(const std::function<void(std::string_view)>&)>& produce) {
  Draft draft(path);
  produce([&](std::string_view bytes) { draft.append(bytes); });
  draft.keep();
}

void sync_folder(const fs::path& folder) {
  const Descriptor descriptor(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) fail("write", folder);
  // Some file systems have no such thing for a folder (EINVAL), and are none the worse for it.
  if (fsync(descriptor.get()) != 0 && errno != EINVAL) fail("write", folder);
}

std::string read_file(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail("read", path);
  const std::unique_ptr<const int, void (*)(const int*)> closer(&descriptor, [](const int* fd) { close(*fd); });
  struct stat status {};
  if (fstat(descriptor, &status) != 0) fail("read", path);
  // The size is only a hint, zero for a pipe: the end is where a read says so.
  constexpr std::size_t kLeastRoom = 1 << 16;
  std::string contents(std::max(static_cast<std::size_t>(status.st_size) + 1, kLeastRoom), '\0');
  std::size_t size = 0;
  while (true) {
    if (size == contents.size()) contents.resize(2 * size);
    const auto count = ::read(descriptor, contents.data() + size, contents.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", path);
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  contents.resize(size);
  return contents;
}

TemporaryFolder::TemporaryFolder(const fs::path& parent) {
  std::string name = (parent / "co2-XXXXXX").string();
  if (!mkdtemp(name.data())) fail("make a folder in", parent);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace co2
