#include "study/study_file.h"

#include <gtest/gtest.h>

#include "study/studies.h"

namespace co2::study {
namespace {

using test::kDdp;
using test::kHead;
using test::Written;

TEST(StudyFile, EverythingThatItMayHave) {
  const Written written(R"(
name = "all"
seeds = [1, 2]
reference = "ddp"
metric = "accuracy"
better = "higher"
drawn = ["ddp"]
[common]
workers = 4
batch = 8
[tune]
budget = 2
seeds = [101]
steps = 50
learning_rate = [1e-3, 2e-3]
[link]
rate = "100mbit"
step_seconds = 0.5
[[row]]
name = "ddp"
strategy = "ddp"
[[row]]
name = "co2"
seeds = [1, 2, 3, 4, 5]
[row.grid]
local-steps = [2, 4]
[row.tune]
momentum = [0.0, 0.3]
)");
  const StudyFile file = written.file();
  EXPECT_EQ(file.name, "all");
  EXPECT_EQ(file.metric, "accuracy");
  EXPECT_TRUE(file.higher_is_better);
  EXPECT_EQ(file.common.at("batch").value, 8);
  ASSERT_TRUE(file.tune);
  EXPECT_EQ(file.tune->budget, 2);
  EXPECT_EQ(file.tune->settings.at("steps").value, 50);
  EXPECT_EQ(file.tune->choices.at(0).values.size(), 2U);
  ASSERT_TRUE(file.link);
  EXPECT_EQ(file.link->rate.bits_per_second, 100e6);
  EXPECT_EQ(file.link->step_seconds, 0.5);
  ASSERT_EQ(file.rows.size(), 2U);
  EXPECT_EQ(file.rows[1].seeds.size(), 5U);
  EXPECT_EQ(file.rows[1].grid.at(0).option, "local_steps");
  EXPECT_EQ(file.rows[1].choices.at(0).option, "momentum");
}

struct Wrong {
  std::string text;
  std::string message;  // a part of it
};

class WrongFile : public testing::TestWithParam<Wrong> {};

TEST_P(WrongFile, IsRefusedWithALineAndAReason) {
  const std::string refusal = Written(GetParam().text).refusal();
  EXPECT_NE(refusal.find(GetParam().message), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("study.toml"), std::string::npos) << refusal;
}

const std::string kFile = "name = \"a\"\nseeds = [1]\nreference = \"ddp\"\n";

INSTANTIATE_TEST_SUITE_P(
    All, WrongFile,
    testing::Values(Wrong{"name = ", "the TOML is not valid"}, Wrong{"seeds = [1]\n", "the study has no name"},
                    Wrong{"name = \"a/b\"\n", "letters, digits"}, Wrong{"name = \"a\"\n", "'seeds'"},
                    Wrong{"name = \"a\"\nseeds = []\n", "is an empty list"},
                    Wrong{"name = \"a\"\nseeds = [1, 1]\n", "has 1 twice"},
                    Wrong{"name = \"a\"\nseeds = [-1]\n", "none of them negative"},
                    Wrong{"name = \"a\"\nseeds = [1]\n", "'reference'"}, Wrong{kFile, "has no rows"},
                    Wrong{kFile + "sedes = [1]\n" + kDdp, "did you mean 'seeds'?"},
                    Wrong{kFile + "better = \"more\"\n" + kDdp, "must be 'lower' or 'higher'"},
                    Wrong{kFile + "[row]\nname = \"ddp\"\n", "write [[row]] above each"},
                    Wrong{kFile + "[common]\nseed = 3\n" + kDdp, "is up to the study: write seeds"},
                    Wrong{kFile + "[common]\nbatch = [4, 8]\n" + kDdp, "is a list"},
                    Wrong{kFile + "[link]\nrate = \"unlimited\"\n" + kDdp, "must be a number"},
                    Wrong{kFile + "[tune]\nlearning_rate = [1.0]\n" + kDdp, "trials have seeds of their own"},
                    Wrong{kFile + kDdp + "[row.grid]\nworkers = 4\n", "must be a list of values"},
                    Wrong{kFile + kDdp + "[row.tune]\nbudget = 4\n", "is the same for all rows"}));

}  // namespace
}  // namespace co2::study
