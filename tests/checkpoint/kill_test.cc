// Killed at any moment, a process that saves, replaces and prunes leaves a newest checkpoint that is good.

#include <gtest/gtest.h>
#include <sys/ptrace.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/descriptor.h"
#include "checkpoint/folder.h"
#include "checkpoint/parts.h"
#include "support/processes.h"
#include "support/temporary.h"

namespace co2::checkpoint {
namespace {

namespace fs = std::filesystem;

/// In memory if possible: a killed process, unlike a power failure, leaves the same on any file system.
struct QuickFolder : TemporaryFolder {
  QuickFolder() : TemporaryFolder(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path()) {}
};

class KillTest : public testing::TestWithParam<Replace> {
 protected:
  /// What is there, whenever: one that is good, with the right contents, and no name that stands for less.
  std::int64_t newest_step(const fs::path& run) {
    const auto found = Checkpoints(run).newest_good();
    if (!found.path) {
      ADD_FAILURE() << "no checkpoint is left";
      return -1;
    }
    EXPECT_TRUE(found.passed_over.empty()) << found.passed_over[0].second;
    EXPECT_TRUE(holds_what_was_saved(*found.path, found.manifest));
    return found.manifest.step;
  }

  /// The next process finds its way, and tidies up.
  void expect_recovery(const fs::path& run, std::int64_t step) {
    Checkpoints next(run, GetParam());
    next.remove_partials();
    save(next, step, 1);
    next.prune(1);
    EXPECT_EQ(newest_step(run), step);
    EXPECT_EQ(std::distance(fs::directory_iterator(next.folder()), {}), 1);
  }
};
INSTANTIATE_TEST_SUITE_P(Replacing, KillTest, testing::Values(Replace::kSwap, Replace::kStepAside),
                         [](const auto& it) { return it.param == Replace::kSwap ? "swap" : "step_aside"; });

/// What the child does again and again: a new one, one in its place, and the oldest goes.
void save_twice_and_prune(Checkpoints& checkpoints, std::int64_t step) {
  save(checkpoints, step, 2);
  save(checkpoints, step, 1);
  checkpoints.prune(2);
}

TEST_P(KillTest, AtRandomMoments) {
  const test::TestFolder folder;
  Checkpoints first(folder.path(), GetParam());
  const auto begin = std::chrono::steady_clock::now();
  save_twice_and_prune(first, 1);
  const auto took = std::chrono::steady_clock::now() - begin;
  std::mt19937 random(1);
  std::int64_t newest = 1;
  for (int round = 0; round < 50 && !HasFailure(); ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const Descriptor told(ends[0]);
    Descriptor telling(ends[1]);
    test::Ranks child;
    if (child.start() == 0) {
      try {
        Checkpoints checkpoints(folder.path(), GetParam());
        checkpoints.remove_partials();
        for (auto step = newest + 1;; ++step) {
          save_twice_and_prune(checkpoints, step);
          CO2_EXPECT(write(telling.get(), "x", 1) == 1);
        }
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      _exit(1);
    }
    telling = Descriptor();
    // Every other one gets somewhere first.
    if (round % 2 == 0) {
      char x = 0;
      ASSERT_EQ(read(told.get(), &x, 1), 1);
    }
    std::this_thread::sleep_for(took * (random() % 1000) / 500);
    child.end(0);
    const auto now = newest_step(folder.path());
    EXPECT_GE(now, newest + (round % 2 == 0 ? 1 : 0));
    newest = now;
  }
  expect_recovery(folder.path(), newest + 1);
}

/// Follows a child by its system calls and kills it after the n-th. False once it has ended before that.
bool kill_after_calls(int calls, const std::function<void()>& body) {
  test::Ranks child;
  const pid_t pid = child.start();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }
  int status = child.wait(0);
  for (int stops = 0; stops < 2 * calls; ++stops) {  // at the beginning of each call, and at its end
    if (!WIFSTOPPED(status) || ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr) != 0) break;
    status = child.wait(0);
  }
  if (WIFSTOPPED(status)) return true;  // and `child` kills it
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return false;
}

bool can_trace() {
  test::Ranks child;
  const pid_t pid = child.start();
  if (pid == 0) _exit(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
  const int status = child.wait(0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_P(KillTest, AfterEverySystemCall) {
  if (!can_trace()) GTEST_SKIP() << "processes can't be traced here";
  int calls = 1;
  for (bool killed = true; killed && !HasFailure(); ++calls) {
    const QuickFolder folder;
    Checkpoints first(folder.path(), GetParam());
    save(first, 1, 1);
    killed = kill_after_calls(calls, [&] {
      Checkpoints checkpoints(folder.path(), GetParam());
      save(checkpoints, 1, 2);  // in place of the only one
      save(checkpoints, 2, 1);
      checkpoints.prune(1);
    });
    const auto newest = newest_step(folder.path());
    EXPECT_GE(newest, killed ? 1 : 2) << calls;
    expect_recovery(folder.path(), newest);  // replaces the very one
  }
  EXPECT_GT(calls, 50);
  RecordProperty("calls", calls);
}

}  // namespace
}  // namespace co2::checkpoint
