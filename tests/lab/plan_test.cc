#include "lab/plan.h"

#include <co2/error.h>
#include <gtest/gtest.h>

namespace co2::lab {
namespace {

TEST(Strategies, AreNamesWithAWireFormatAndASteps) {
  const auto items = parse_strategies("none,ddp@40,co2+bfloat16,co2+bfloat16@7");
  ASSERT_EQ(items.size(), 4U);
  EXPECT_EQ(items[0].strategy, "none");
  EXPECT_FALSE(items[0].steps);
  EXPECT_EQ(items[1].strategy, "ddp");
  EXPECT_EQ(items[1].steps, 40);
  EXPECT_EQ(items[1].label, "ddp@40");
  EXPECT_EQ(items[2].strategy, "co2");
  EXPECT_EQ(items[2].wire, "bfloat16");
  EXPECT_EQ(items[3].steps, 7);
}

TEST(Strategies, CanBeAll) { EXPECT_EQ(parse_strategies("all").size(), 10U); }

TEST(Strategies, RefuseWhatIsNone) {
  for (const char* text :
       {"", "co3", "co2,", "co2,co2", "co2@", "co2@0", "co2@-3", "co2@4x", "co2+", "+bfloat16", "@4"}) {
    EXPECT_THROW(parse_strategies(text), OptionError) << text;
  }
}

TEST(Peers, AreGroupsOrSingleOnes) {
  EXPECT_TRUE(parse_peers("").empty());
  EXPECT_EQ(parse_peers("torch").size(), 4U);
  EXPECT_EQ(parse_peers("torch,torchft").size(), 8U);
  const auto items = parse_peers("torch-ddp,torchft-diloco");
  ASSERT_EQ(items.size(), 2U);
  EXPECT_TRUE(items[0].peer());
  const auto short_one = parse_peers("torch-ddp@20");
  EXPECT_EQ(short_one.at(0).label, "torch-ddp@20");
  EXPECT_EQ(short_one.at(0).peer_name, "torch-ddp");
  EXPECT_EQ(short_one.at(0).steps, 20);
  EXPECT_EQ(items[1].label, "torchft-diloco");
  for (const char* text : {"pytorch", "torch,", "torch,torch-ddp"})
    EXPECT_THROW(parse_peers(text), OptionError) << text;
}

TEST(TrainFlags, MustNotContradictTheLab) {
  check_train_flags({"--learning-rate", "1e-3", "--fragments=2"});
  for (const char* flag : {"--strategy", "--strategy=co2", "--workers", "--out", "--interface", "--json", "--resume",
                           "--resume=run", "--virtual"}) {
    EXPECT_THROW(check_train_flags({flag}), OptionError) << flag;
  }
}

}  // namespace
}  // namespace co2::lab
