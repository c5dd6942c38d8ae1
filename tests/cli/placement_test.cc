#include "processes/placement.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <set>

#include "base/cores.h"

namespace co2::processes {
namespace {

TEST(Placement, GivesEveryWorkerEquallyManyNeighbouringCores) {
  const auto shares = place(3, {0, 1, 2, 3, 8, 9, 10}, 0, true);
  ASSERT_EQ(shares.size(), 3U);
  EXPECT_EQ(shares[0].cores, (std::vector<int>{0, 1}));
  EXPECT_EQ(shares[1].cores, (std::vector<int>{2, 3}));
  EXPECT_EQ(shares[2].cores, (std::vector<int>{8, 9}));
  for (const CoreShare& share : shares) EXPECT_EQ(share.threads, 2);
}

TEST(Placement, NoCoreIsSharedWhileThereAreEnough) {
  std::vector<int> cores;
  for (int core = 0; core < 64; ++core) cores.push_back(core);
  for (int workers = 1; workers <= 64; ++workers) {
    std::set<int> used;
    for (const CoreShare& share : place(workers, cores, 0, true)) {
      EXPECT_EQ(share.cores.size(), static_cast<std::size_t>(64 / workers));
      for (const int core : share.cores) EXPECT_TRUE(used.insert(core).second) << workers << " workers, core " << core;
    }
  }
}

TEST(Placement, MoreWorkersThanCoresTakeTurns) {
  const auto shares = place(5, {4, 6}, 0, true);
  ASSERT_EQ(shares.size(), 5U);
  const std::vector<int> expected{4, 6, 4, 6, 4};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(shares[i].cores, std::vector<int>{expected[i]});
    EXPECT_EQ(shares[i].threads, 1);
  }
}

TEST(Placement, ThreadsAndNoPinOverride) {
  const auto shares = place(2, {0, 1, 2, 3}, 7, false);
  for (const CoreShare& share : shares) {
    EXPECT_EQ(share.cores, (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(share.threads, 7);
  }
}

TEST(Placement, FormatsCoresAsRanges) {
  EXPECT_EQ(format_cores({}), "");
  EXPECT_EQ(format_cores({5}), "5");
  EXPECT_EQ(format_cores({0, 1}), "0-1");
  EXPECT_EQ(format_cores({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

TEST(Placement, PinningIsSeenByUsableCores) {
  const std::vector<int> all = usable_cores();
  ASSERT_FALSE(all.empty());
  ASSERT_TRUE(pin_to({all.back()}));
  EXPECT_EQ(usable_cores(), std::vector<int>{all.back()});
  EXPECT_EQ(default_workers(), 1);
  ASSERT_TRUE(pin_to(all));
  EXPECT_EQ(usable_cores(), all);
  EXPECT_FALSE(pin_to({}));
}

TEST(Placement, WorkersOfAnotherLauncherShareTheMachineOnlyIfItDidNotDivideIt) {
  EXPECT_EQ(joined_threads(2, 8, 8), 4);  // nobody is bound
  EXPECT_EQ(joined_threads(3, 8, 8), 2);
  EXPECT_EQ(joined_threads(2, 4, 8), 4);  // bound to halves
  EXPECT_EQ(joined_threads(8, 1, 8), 1);
  EXPECT_EQ(joined_threads(16, 8, 8), 1);
  EXPECT_EQ(joined_threads(1, 8, 8), 8);
}

}  // namespace
}  // namespace co2::processes
