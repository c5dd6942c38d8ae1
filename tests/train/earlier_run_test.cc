#include "train/earlier_run.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "checkpoint/folder.h"
#include "checkpoint/names.h"
#include "support/temporary.h"

namespace co2::train {
namespace {

namespace fs = std::filesystem;

struct Left {
  std::int64_t planned = 300;                   // in config.json
  std::optional<std::int64_t> results = {};     // steps in summary.json
  bool interrupted = false;                     // the same
  std::optional<std::int64_t> checkpoint = {};  // its step
  bool model = true;                            // if there are results
};

fs::path folder_with(const fs::path& run, const Left& left) {
  fs::create_directories(run);
  write_atomically(run / "config.json", fmt::format("{{\"steps\": {}}}", left.planned));
  if (left.results) {
    write_atomically(run / "summary.json",
                     fmt::format("{{\"steps\": {}, \"interrupted\": {}}}", *left.results, left.interrupted));
  }
  if (left.results && left.model) {
    fs::create_directories(run / "model");
    for (const char* name : {"model.safetensors", "config.json"}) write_atomically(run / "model" / name, "");
  }
  if (left.checkpoint) {
    checkpoint::Checkpoints checkpoints(run);
    checkpoints.begin(*left.checkpoint, "token");
    checkpoint::Manifest manifest{.step = *left.checkpoint, .workers = 1, .island_size = 1, .zero = 0};
    manifest.files = {{checkpoint::worker_file(0), 1, std::string(32, '0')}};
    checkpoints.publish("token", manifest, std::vector<int>{});  // on another machine, say
  }
  return run;
}

TEST(EarlierRun, IsCompleteWhenItHasTakenTheStepsAndWrittenItsResults) {
  const test::TestFolder folder;
  EXPECT_TRUE(is_complete(folder_with(folder / "finished", {.results = 300, .checkpoint = 300}), 300));
  EXPECT_TRUE(is_complete(folder_with(folder / "bare", {.results = 300}), 300));
  EXPECT_FALSE(is_complete(folder / "finished", 301));
  // Killed before the first checkpoint; after the last one, but before its results; stopped.
  EXPECT_FALSE(is_complete(folder_with(folder / "killed", {}), 300));
  EXPECT_FALSE(is_complete(folder_with(folder / "killed at the end", {.checkpoint = 300}), 300));
  EXPECT_FALSE(
      is_complete(folder_with(folder / "stopped", {.results = 80, .interrupted = true, .checkpoint = 80}), 300));
  // It was given more steps, and killed: the summary is of the life before.
  const auto more = folder_with(folder / "more", {.planned = 400, .results = 300, .checkpoint = 300});
  EXPECT_FALSE(is_complete(more, 400));
  EXPECT_FALSE(is_complete(more, 300));
}

TEST(EarlierRun, IsNotCompleteWithoutItsModel) {
  const test::TestFolder folder;
  EXPECT_FALSE(is_complete(folder_with(folder / "a", {.results = 300, .checkpoint = 300, .model = false}), 300));
  EXPECT_FALSE(is_complete(folder_with(folder / "b", {.results = 300, .checkpoint = 200, .model = false}), 300));
  const auto text = test::message_of<DataError>(
      [&] { is_complete(folder_with(folder / "c", {.results = 300, .model = false}), 300); });
  EXPECT_NE(text.find("has no model (model/model.safetensors"), std::string::npos) << text;
}

TEST(EarlierRun, FewerStepsThanWereTakenAreRefused) {
  const test::TestFolder folder;
  const auto message = [](const fs::path& run) {
    return test::message_of<OptionError>([&] { is_complete(run, 100); });
  };
  for (const auto& [name, left] :
       {std::pair("finished", Left{.results = 300, .checkpoint = 80}),
        std::pair("without a checkpoint", Left{.results = 300}), std::pair("killed", Left{.checkpoint = 300}),
        std::pair("stopped", Left{.results = 300, .interrupted = true, .checkpoint = 80})}) {
    const std::string text = message(folder_with(folder / name, left));
    EXPECT_NE(text.find("steps = 100 is not allowed"), std::string::npos) << name << ": " << text;
    EXPECT_NE(text.find("has taken 300 already"), std::string::npos) << name << ": " << text;
  }
}

TEST(EarlierRun, ResultsAreNotReplacedByThoseOfARunFromTheBeginning) {
  const test::TestFolder folder;
  for (const bool interrupted : {false, true}) {
    const auto run = folder_with(folder / fmt::format("{}", interrupted), {.results = 80, .interrupted = interrupted});
    const auto text = test::message_of<DataError>([&] { is_complete(run, 310); });
    EXPECT_NE(text.find("no checkpoint to go on from"), std::string::npos) << text;
  }
  write_atomically(folder_with(folder / "odd", {}) / "summary.json", "{}");
  EXPECT_THROW(is_complete(folder / "odd", 300), DataError);
}

}  // namespace
}  // namespace co2::train
