#include "base/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <thread>

#include "base/child_process.h"
#include "support/temporary.h"

namespace co2 {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

FolderLock take(const std::filesystem::path& folder, milliseconds patience = {}) {
  return {folder, "somebody is at work", "wait", patience};
}

TEST(FolderLock, IsOnesAtATimeAndSaysWhose) {
  const test::TestFolder folder;
  {
    const FolderLock first = take(folder.path());
    const std::string message = test::message_of<DataError>([&] { take(folder.path()); });
    EXPECT_EQ(message.rfind("somebody is at work, process " + std::to_string(getpid()) + " on ", 0), 0U) << message;
    EXPECT_TRUE(message.ends_with(": wait")) << message;
  }
  take(folder.path());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(FolderLock, WaitsForOneThatIsAboutToEnd) {
  const test::TestFolder folder;
  std::optional<FolderLock> first(take(folder.path()));
  std::thread end([&] {
    std::this_thread::sleep_for(milliseconds(200));
    first.reset();
  });
  take(folder.path(), seconds(60));
  end.join();
}

// However that ends, and no sooner.
TEST(FolderLock, EndsWithTheLastProcessThatHasIt) {
  const test::TestFolder folder;
  std::optional<FolderLock> first(take(folder.path()));
  const pid_t child = start_child({.command = {"sleep", "1000"}, .inherit = {first->descriptor()}});
  const std::filesystem::path kept = folder / "kept";  // as if we had been killed, and had not removed it
  std::filesystem::rename(folder / FolderLock::kFile, kept);
  first.reset();
  std::filesystem::rename(kept, folder / FolderLock::kFile);
  EXPECT_THROW(take(folder.path()), DataError);
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  take(folder.path());
}

// Two that always want it, and take it away from under each other: never both at once.
TEST(FolderLock, IsNeverHeldTwiceWhileItIsRemovedAndMadeAnew) {
  const test::TestFolder folder;
  std::atomic<int> holders{0};
  std::atomic<bool> twice{false};
  const auto work = [&] {
    for (int i = 0; i < 200; ++i) {
      const FolderLock lock = take(folder.path(), seconds(60));
      if (++holders > 1) twice = true;
      --holders;
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_FALSE(twice);
}

}  // namespace
}  // namespace co2
