#include "train/run_files.h"

#include <co2/error.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/files.h"
#include "support/temporary.h"
#include "train/folders.h"

namespace co2::train {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(RunFiles, AFolderThatIsTakenIsNotSharedWithAnotherRun) {
  const test::TestFolder folder;
  EXPECT_EQ(claim_folder(folder / "runs/a"), folder / "runs/a");
  EXPECT_EQ(claim_folder(folder / "runs/a"), folder / "runs/a-2");
  put(folder / "runs/a-3", "a file");
  EXPECT_EQ(claim_folder(folder / "runs/a"), folder / "runs/a-4");
  EXPECT_THROW(claim_folder(folder / "runs/a-3/b"), DataError);
}

TEST(RunFiles, ANewRunRemovesWhatAnEarlierOneLeftAndNothingElse) {
  const test::TestFolder folder;
  const fs::path run = folder / "run";
  for (const char* name : {"summary.json", "trace.json", "metrics.jsonl", "config.json", "model/model.safetensors",
                           "model/config.json", "notes.txt"}) {
    put(run / name, "old");
  }
  begin_run_folder(run, "new");
  EXPECT_EQ(read_file(run / "config.json"), "new");
  EXPECT_EQ(read_file(run / "notes.txt"), "old");
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(run)) left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"config.json", "notes.txt"}));

  put(run / "model/mine.txt", "mine");
  begin_run_folder(run, "");
  EXPECT_EQ(read_file(run / "config.json"), "new");
  EXPECT_EQ(read_file(run / "model/mine.txt"), "mine");
}

}  // namespace
}  // namespace co2::train
