#include "checkpoint/folder.h"

#include <co2/error.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "checkpoint/names.h"
#include "checkpoint/parts.h"
#include "support/temporary.h"

namespace co2::checkpoint {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::vector<std::int64_t> steps_of(const Checkpoints& checkpoints) {
  std::vector<std::int64_t> steps;
  for (const auto& checkpoint : checkpoints.list()) steps.push_back(checkpoint.step);
  return steps;
}

void damage(const fs::path& file) {
  auto contents = read_file(file);
  contents[contents.size() / 2] ^= 1;
  write_atomically(file, contents);
}

class CheckpointsTest : public testing::TestWithParam<Replace> {
 protected:
  const test::TestFolder folder_;
  Checkpoints checkpoints_{folder_.path(), GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Replacing, CheckpointsTest, testing::Values(Replace::kSwap, Replace::kStepAside),
                         [](const auto& it) { return it.param == Replace::kSwap ? "swap" : "step_aside"; });

TEST_P(CheckpointsTest, APublishedOneIsListedVerifiedAndRead) {
  EXPECT_TRUE(checkpoints_.list().empty());
  EXPECT_FALSE(checkpoints_.newest_good().path);
  const auto path = save(checkpoints_, 120);
  EXPECT_EQ(path, folder_ / "checkpoints" / "step-000000000120");
  EXPECT_EQ(names_in(checkpoints_.folder()), std::vector<std::string>{"step-000000000120"});
  EXPECT_EQ(names_in(path),
            (std::vector<std::string>{"manifest.json", "worker-00000.safetensors", "worker-00001.safetensors"}));
  const auto manifest = verify(path);
  EXPECT_NE(manifest.co2, "");
  EXPECT_TRUE(holds_what_was_saved(path, manifest));
  save(checkpoints_, 20);
  save(checkpoints_, 1'000'000);
  EXPECT_EQ(steps_of(checkpoints_), (std::vector<std::int64_t>{1'000'000, 120, 20}));
  EXPECT_EQ(checkpoints_.newest_good().manifest.step, 1'000'000);
}

TEST_P(CheckpointsTest, OneOfTheSameStepIsReplaced) {
  save(checkpoints_, 7, 1);
  const auto path = save(checkpoints_, 7, 3);
  EXPECT_EQ(verify(path).workers, 3);
  EXPECT_EQ(names_in(checkpoints_.folder()), std::vector<std::string>{"step-000000000007"});
}

TEST_P(CheckpointsTest, WhoWasKilledWhileReplacingLeavesTheOldOne) {
  const auto path = save(checkpoints_, 7);
  fs::rename(path, path.string() + ".old");
  ASSERT_TRUE(checkpoints_.newest_good().path);
  EXPECT_EQ(checkpoints_.newest_good().path->filename(), "step-000000000007.old");
  save(checkpoints_, 7, 3);
  EXPECT_EQ(names_in(checkpoints_.folder()), std::vector<std::string>{"step-000000000007"});
  EXPECT_EQ(verify(path).workers, 3);
  // One step later: both are there.
  fs::copy(path, path.string() + ".old", fs::copy_options::recursive);
  EXPECT_EQ(checkpoints_.newest_good().path, path);
  save(checkpoints_, 7);
  EXPECT_EQ(names_in(checkpoints_.folder()), std::vector<std::string>{"step-000000000007"});
}

TEST_P(CheckpointsTest, WorkersWriteIntoOneFolderByThemselves) {
  const auto token = new_token();
  Manifest manifest{.step = 5, .workers = 2};
  for (int worker : {1, 0}) {
    const Checkpoints own(folder_.path(), GetParam());
    manifest.files.push_back(write_part(own.begin(5, token), worker, part_of(5, worker)));
  }
  const auto path = checkpoints_.publish(token, manifest);
  EXPECT_TRUE(holds_what_was_saved(path, verify(path)));
}

TEST_P(CheckpointsTest, WithoutASharedFileSystemEachPublishesTheSameManifest) {
  const test::TestFolder other;
  Checkpoints there(other.path(), GetParam());
  const auto token = new_token();
  Manifest manifest{.step = 5, .workers = 2};
  manifest.files.push_back(write_part(checkpoints_.begin(5, token), 0, part_of(5, 0)));
  manifest.files.push_back(write_part(there.begin(5, token), 1, part_of(5, 1)));
  EXPECT_THROW(there.publish(token, manifest), DataError);
  EXPECT_THROW(there.publish(token, manifest, std::vector{0, 1}), DataError);
  EXPECT_THROW(there.publish(token, manifest, std::vector{2}), DataError);
  EXPECT_TRUE(there.list().empty());
  checkpoints_.publish(token, manifest, std::vector{0});
  const auto path = there.publish(token, manifest, std::vector{1});
  EXPECT_EQ(verify(path, std::vector{1}), verify(checkpoints_.path_of(5), std::vector{0}));
  EXPECT_EQ(there.newest_good(std::vector{1}).path, path);
  EXPECT_FALSE(there.newest_good().path);
  const auto message = test::message_of<DataError>([&] { verify(path); });
  EXPECT_NE(message.find("worker-00000.safetensors is missing"), std::string::npos) << message;
}

TEST_P(CheckpointsTest, AnEarlierAttemptIsRemovedBeforeTheNext) {
  const auto stale = checkpoints_.begin(5, "one");
  write_part(stale, 0, part_of(5, 0));
  const auto other_step = checkpoints_.begin(6, "one");
  const auto fresh = checkpoints_.begin(5, "two");
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(other_step));
  EXPECT_EQ(fresh.filename(), ".step-000000000005.partial-two");
  EXPECT_EQ(checkpoints_.begin(5, "two"), fresh);
  EXPECT_TRUE(checkpoints_.list().empty());
  checkpoints_.discard(5, "two");
  EXPECT_FALSE(fs::exists(fresh));
  EXPECT_THROW(checkpoints_.begin(5, ""), DataError);
  EXPECT_THROW(checkpoints_.begin(5, "../x"), DataError);
  EXPECT_THROW(checkpoints_.begin(-1, "x"), DataError);
  EXPECT_THROW(checkpoints_.begin(kLastStep + 1, "x"), DataError);
  checkpoints_.remove_partials();
  EXPECT_TRUE(fs::is_empty(checkpoints_.folder()));
}

TEST_P(CheckpointsTest, TheNewestGoodOneIsFoundAndTheOthersAreNamed) {
  save(checkpoints_, 1);
  save(checkpoints_, 2);
  damage(save(checkpoints_, 3) / "worker-00001.safetensors");
  fs::remove(save(checkpoints_, 4) / "worker-00000.safetensors");
  damage(save(checkpoints_, 5) / "manifest.json");
  fs::create_directory(checkpoints_.path_of(6));
  write_atomically(checkpoints_.path_of(7), "a file");
  fs::copy(checkpoints_.path_of(2), checkpoints_.path_of(8), fs::copy_options::recursive);
  const auto found = checkpoints_.newest_good();
  EXPECT_EQ(found.path, checkpoints_.path_of(2));
  EXPECT_EQ(found.manifest.step, 2);
  std::vector<std::string> expected = {"the folder was renamed",
                                       "Not a directory",
                                       "manifest.json is missing",
                                       "is not a sound manifest: its checksum",
                                       "worker-00000.safetensors is missing",
                                       "worker-00001.safetensors is not what"};
  ASSERT_EQ(found.passed_over.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [path, problem] = found.passed_over[i];
    EXPECT_EQ(path, checkpoints_.path_of(8 - static_cast<std::int64_t>(i)));
    EXPECT_NE(problem.find(expected[i]), std::string::npos) << problem;
  }
}

TEST_P(CheckpointsTest, PruningKeepsTheNewestGoodOnes) {
  for (const int step : {1, 2, 3, 4, 5}) save(checkpoints_, step);
  damage(checkpoints_.path_of(5) / "worker-00000.safetensors");
  damage(checkpoints_.path_of(2) / "manifest.json");
  checkpoints_.prune(2);
  EXPECT_EQ(steps_of(checkpoints_), (std::vector<std::int64_t>{5, 4, 3, 2}));  // 5 and 2 are no good, and stay
  checkpoints_.prune(1);
  EXPECT_EQ(steps_of(checkpoints_), (std::vector<std::int64_t>{5, 4, 2}));
  damage(checkpoints_.path_of(4) / "worker-00000.safetensors");
  Checkpoints(folder_.path()).prune(1);
  EXPECT_EQ(steps_of(checkpoints_), (std::vector<std::int64_t>{5, 4, 2}));  // none is good: none goes
  EXPECT_THROW(checkpoints_.prune(0), OptionError);
}

TEST_P(CheckpointsTest, PruningCountsAStepOnce) {
  save(checkpoints_, 1);
  const auto path = save(checkpoints_, 2);
  fs::copy(path, path.string() + ".old", fs::copy_options::recursive);
  checkpoints_.prune(2);
  EXPECT_EQ(names_in(checkpoints_.folder()), (std::vector<std::string>{"step-000000000001", "step-000000000002"}));
}

TEST_P(CheckpointsTest, PruningRemovesOnlyPartialsThatNobodyWrites) {
  checkpoints_.begin(3, "stale");
  checkpoints_.begin(4, "removed-x");
  const auto live = checkpoints_.begin(6, "live");
  checkpoints_.prune(1);
  EXPECT_EQ(names_in(checkpoints_.folder()).size(), 3u);
  save(checkpoints_, 5);
  checkpoints_.prune(1);
  EXPECT_EQ(names_in(checkpoints_.folder()), (std::vector<std::string>{live.filename().string(), "step-000000000005"}));
}

TEST_P(CheckpointsTest, OnlyCheckpointsOfTheFolderAreRemoved) {
  const auto path = save(checkpoints_, 1);
  write_atomically(checkpoints_.folder() / "notes", "mine");
  EXPECT_THROW(checkpoints_.remove(checkpoints_.folder() / "notes"), DataError);
  EXPECT_THROW(checkpoints_.remove(folder_ / "step-000000000001"), DataError);
  EXPECT_THROW(checkpoints_.remove(checkpoints_.path_of(2)), DataError);
  checkpoints_.remove(path);
  EXPECT_EQ(names_in(checkpoints_.folder()), std::vector<std::string>{"notes"});
}

TEST(Names, AreReadBackOnlyAsTheyAreWritten) {
  using Kind = StepName::Kind;
  for (const auto& name :
       {StepName{Kind::kWhole, 0}, StepName{Kind::kOld, 12}, StepName{Kind::kPartial, kLastStep, "a-1"}}) {
    const auto back = parse_step_name(text_of(name));
    ASSERT_TRUE(back);
    EXPECT_EQ(text_of(*back), text_of(name));
  }
  for (const char* text :
       {"", ".", "..", "step-", "step-1", "step-0000000000012", "step-00000000001x", "step-000000000001.new",
        ".step-000000000001", ".step-000000000001.old", "step-000000000001.partial-x", ".step-000000000001.partial-",
        ".step-000000000001.partial-a/b", "step-000000000001 ", "Step-000000000001", "step--00000000001"}) {
    EXPECT_FALSE(parse_step_name(text)) << text;
  }
}

TEST(RequireSpace, SaysHowMuchThereIs) {
  const test::TestFolder folder;
  EXPECT_NO_THROW(require_space(folder / "not" / "yet", 1));
  const auto message = test::message_of<DataError>([&] { require_space(folder / "not", std::int64_t{1} << 60); });
  EXPECT_NE(message.find("a checkpoint needs 1152921.5 TB"), std::string::npos) << message;
}

}  // namespace
}  // namespace co2::checkpoint
