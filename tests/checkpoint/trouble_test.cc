// Disks that are full, folders that can't be written or go away: an error that says so, and nothing that was good is
// lost.

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <functional>

#include "base/files.h"
#include "checkpoint/folder.h"
#include "checkpoint/parts.h"
#include "support/processes.h"
#include "support/temporary.h"

namespace co2::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string problem(const std::function<void()>& body) { return test::message_of<DataError>(body); }
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// In a process of its own, which may change what all of it sees.
void run_apart(const std::function<void()>& body) {
  test::run_processes(1, [&](int) { body(); });
}

/// What another program makes of this kernel, so that a mistake of ours is a failure and not a skip.
bool can_mount() {
  const char* command = "sh -c 'mount -t tmpfs none /tmp' >/dev/null 2>&1";
  return std::system(
             fmt::format("unshare --mount {0} || unshare --user --map-root-user --mount {0}", command).c_str()) == 0;
}

/// A file system of that many bytes, seen by this process only.
void mount_small(const fs::path& folder, int bytes) {
  const auto user = getuid();
  CO2_EXPECT(unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) == 0);
  if (user != 0) std::ofstream("/proc/self/uid_map") << fmt::format("0 {} 1", user);
  CO2_EXPECT(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
  CO2_EXPECT(mount("none", folder.c_str(), "tmpfs", 0, fmt::format("size={}", bytes).c_str()) == 0);
}

Part large_part() { return {.tensors = {{"x", at::zeros({100'000})}}, .integers = {}, .numbers = {}, .texts = {}}; }

TEST(Trouble, ADiskThatIsFull) {
  if (!can_mount()) GTEST_SKIP() << "no mounts here";
  const test::TestFolder folder;
  run_apart([&] {
    mount_small(folder.path(), 256 << 10);
    Checkpoints checkpoints(folder.path());
    save(checkpoints, 1);
    CO2_EXPECT(contains(problem([&] { require_space(folder.path(), 1 << 20); }), "and a checkpoint needs 1.0 MB"));
    const auto partial = checkpoints.begin(2, "x");
    CO2_EXPECT(contains(problem([&] { write_part(partial, 0, large_part()); }), "No space left on device"));
    CO2_EXPECT(fs::is_empty(partial));
    CO2_EXPECT(checkpoints.newest_good().manifest.step == 1);

    // One page after the other becomes free, so that each of the files is once the first that does not fit.
    fs::create_directory(folder / "filler");
    int pages = 0;
    try {
      for (; pages < 1000; ++pages) write_atomically(folder / "filler" / std::to_string(pages), std::string(4096, 'x'));
    } catch (const DataError&) {
    }
    CO2_EXPECT(pages > 10 && pages < 1000);
    int failures = 0;
    bool saved = false;
    while (!saved && pages-- > 0) {
      try {
        save(checkpoints, 2);
        saved = true;
      } catch (const DataError& error) {
        CO2_EXPECT(contains(error.what(), "No space left on device"));
        ++failures;
      }
      const auto found = checkpoints.newest_good();
      CO2_EXPECT(found.path && found.passed_over.empty() && found.manifest.step == (saved ? 2 : 1));
      CO2_EXPECT(holds_what_was_saved(*found.path, found.manifest));
      fs::remove(folder / "filler" / std::to_string(pages));
    }
    CO2_EXPECT(saved && failures >= 3);
  });
}

TEST(Trouble, AFileThatMayNotGrow) {
  const test::TestFolder folder;
  run_apart([&] {
    Checkpoints checkpoints(folder.path());
    save(checkpoints, 1);
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    CO2_EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    const auto partial = checkpoints.begin(2, "x");
    CO2_EXPECT(
        contains(problem([&] { write_part(partial, 0, large_part()); }), "worker-00000.safetensors: File too large"));
    CO2_EXPECT(fs::is_empty(partial));
    save(checkpoints, 3);
    CO2_EXPECT(checkpoints.newest_good().manifest.step == 3);
  });
}

TEST(Trouble, AFolderThatIsReadOnly) {
  if (!can_mount()) GTEST_SKIP() << "no mounts here";
  const test::TestFolder folder;
  run_apart([&] {
    mount_small(folder.path(), 1 << 20);
    Checkpoints checkpoints(folder.path());
    save(checkpoints, 1);
    save(checkpoints, 2);
    checkpoints.begin(3, "x");
    CO2_EXPECT(mount(nullptr, folder.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0);
    for (const auto& message :
         {problem([&] { checkpoints.begin(4, "x"); }), problem([&] { checkpoints.begin(3, "y"); }),
          problem([&] { write_part(checkpoints.begin(3, "x"), 0, {}); }), problem([&] { checkpoints.prune(1); }),
          problem([&] { checkpoints.discard(3, "x"); }),
          problem([&] { checkpoints.remove(checkpoints.path_of(1)); })}) {
      if (!contains(message, "Read-only file system")) throw std::runtime_error("message: " + message);
    }
    CO2_EXPECT(checkpoints.list().size() == 2);
    const auto found = checkpoints.newest_good();
    CO2_EXPECT(found.path && holds_what_was_saved(*found.path, found.manifest));
  });
}

TEST(Trouble, AFileInPlaceOfAFolder) {
  const test::TestFolder folder;
  write_atomically(folder / "checkpoints", "a file");
  const Checkpoints checkpoints(folder.path());
  EXPECT_TRUE(contains(problem([&] { checkpoints.begin(1, "x"); }), "Not a directory"));
  EXPECT_TRUE(contains(problem([&] { checkpoints.list(); }), "Not a directory"));
  EXPECT_TRUE(contains(problem([&] { checkpoints.newest_good(); }), "Not a directory"));
  const Checkpoints inside(folder / "checkpoints");
  EXPECT_NE(problem([&] { inside.begin(1, "x"); }), "");
}

TEST(Trouble, AFolderThatGoesAwayMeanwhile) {
  const test::TestFolder folder;
  Checkpoints checkpoints(folder / "run");
  const auto old = save(checkpoints, 1);
  const auto manifest = verify(old);
  const auto partial = checkpoints.begin(2, "x");
  const auto entry = write_part(partial, 0, part_of(2, 0));
  fs::remove_all(folder / "run");
  EXPECT_TRUE(contains(problem([&] { write_part(partial, 0, part_of(2, 0)); }), "No such file or directory"));
  EXPECT_TRUE(contains(problem([&] { checkpoints.publish("x", {.step = 2, .files = {entry}}); }), "is missing"));
  EXPECT_TRUE(contains(problem([&] { verify(old); }), "manifest.json is missing"));
  EXPECT_TRUE(contains(problem([&] { read_part(old / "worker-00000.safetensors", manifest.files[0]); }), "is missing"));
  EXPECT_TRUE(checkpoints.list().empty());
  EXPECT_NO_THROW(checkpoints.prune(1));
  EXPECT_NO_THROW(checkpoints.discard(2, "x"));
  EXPECT_FALSE(checkpoints.newest_good().path);
  save(checkpoints, 3);
  EXPECT_EQ(checkpoints.newest_good().manifest.step, 3);
}

}  // namespace
}  // namespace co2::checkpoint
