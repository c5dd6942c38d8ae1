#include "train/run_files.h"

#include <co2/error.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/files.h"
#include "support/temporary.h"
#include "train/every.h"
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

TEST(RunFiles, AFolderWithARunInItIsLeftAlone) {
  for (const char* left : {"summary.json", "metrics.jsonl", "checkpoints/step-000000000001/manifest.json"}) {
    const test::TestFolder folder;
    const fs::path run = folder / "run";
    put(run / left, "old");
    put(run / "config.json", "old");
    EXPECT_THROW(begin_run_folder(run, "new"), DataError) << left;
    EXPECT_EQ(read_file(run / left), "old");
    EXPECT_EQ(read_file(run / "config.json"), "old");
    resume_run_folder(run, "new");
    EXPECT_EQ(read_file(run / left), "old");
    EXPECT_EQ(read_file(run / "config.json"), "old");  // until it has worked
    accept_next_config(run);
    accept_next_config(run);
    EXPECT_EQ(read_file(run / left), "old");
    EXPECT_EQ(read_file(run / "config.json"), "new");
    EXPECT_FALSE(fs::exists(run / "config.next.json"));
  }
}

TEST(RunFiles, ANewRunMayBeWhereOtherFilesAre) {
  const test::TestFolder folder;
  const fs::path run = folder / "run";
  put(run / "notes.txt", "mine");
  begin_run_folder(run, "new");
  begin_run_folder(run, "");
  EXPECT_EQ(read_file(run / "config.json"), "new");
  EXPECT_EQ(read_file(run / "notes.txt"), "mine");
}

TEST(Metrics, GoOnWhereTheyWereSaved) {
  const test::TestFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  const auto append = [](MetricsFile& file, std::int64_t step) { file.append({.step = step}); };
  {
    MetricsFile file(path, {.unit = "tokens"}, std::nullopt);
    for (const std::int64_t step : {1, 2, 2, 3}) append(file, step);
    EXPECT_EQ(file.lines(), 4);
  }
  std::ofstream(path, std::ios::app) << R"({"step": 4, "train_lo)";  // the machine went down
  {
    MetricsFile file(path, {.unit = "tokens"}, 2);
    EXPECT_EQ(file.lines(), 2);
    append(file, 2);
  }
  const std::string three = read_file(path);
  EXPECT_EQ(std::count(three.begin(), three.end(), '\n'), 3);
  {
    MetricsFile file(path, {.unit = "tokens"}, 10);  // some were lost: what is there stays
    EXPECT_EQ(file.lines(), 3);
    EXPECT_EQ(file.missing(), 7);
  }
  EXPECT_EQ(read_file(path), three);
  { MetricsFile file(path, {.unit = "tokens"}, 0); }
  EXPECT_EQ(read_file(path), "");
}

TEST(Metrics, NoticeThatTheFileIsGone) {
  const test::TestFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  MetricsFile file(path, {.unit = "tokens"}, std::nullopt);
  file.append({.step = 1});
  EXPECT_EQ(file.problem(), "");
  fs::rename(path, folder / "elsewhere");
  file.sync();
  EXPECT_EQ(file.problem(), path.string() + " was removed or moved while the run was writing to it");
  fs::rename(folder / "elsewhere", path);
  file.sync();
  EXPECT_EQ(file.problem(), "");
  EXPECT_EQ(file.missing(), 0);
}

TEST(Metrics, WaitForRoomOnTheDisk) {
  const test::TestFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  MetricsFile file(path, {.unit = "tokens"}, std::nullopt);
  file.append({.step = 1});
  const auto size = fs::file_size(path);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);  // then a write fails as on a full disk, or ends in mid-line
  const rlimit small{size + 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (const std::int64_t step : {2, 3}) file.append({.step = step});
  file.sync();
  const std::string problem = file.problem();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_NE(problem.find("can't write " + path.string()), std::string::npos) << problem;
  EXPECT_EQ(fs::file_size(path), size + 20);
  file.append({.step = 4});
  EXPECT_EQ(file.problem(), "");
  EXPECT_EQ(file.lines(), 4);
  std::istringstream lines(read_file(path));
  std::int64_t step = 0;
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(nlohmann::json::parse(line)["step"], ++step);
  EXPECT_EQ(step, 4);
}

TEST(Every, IsStepsOrTime) {
  EXPECT_EQ(parse_every("x", "500").steps, 500);
  EXPECT_EQ(parse_every("x", "0").steps, 0);
  EXPECT_EQ(parse_every("x", "90s").seconds, 90);
  EXPECT_EQ(parse_every("x", "1.5h").seconds, 5400);
  EXPECT_EQ(parse_every("x", "10m").steps, 0);
  for (const char* text : {"", "soon", "-1", "-1s", "0s", "nanm", "1d", "1e30h", "5 m", "99999999999999999999"}) {
    EXPECT_THROW(parse_every("x", text), OptionError) << text;
  }
}

}  // namespace
}  // namespace co2::train
