#include "sync/usual_progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace co2 {
namespace {

constexpr double kMost = 4;

/// An exchange of parameters all of which have moved before.
UsualProgress::Size known(double size) { return {size, size}; }

TEST(UsualProgress, NothingIsKnownAboutTheFirstTwo) {
  UsualProgress usual;
  EXPECT_EQ(usual.limit(known(1), 12, kMost), 1);
  EXPECT_EQ(usual.limit(known(1e9), 12, kMost), 1);
  EXPECT_LT(usual.limit(known(1e11), 12, kMost), 1);
}

// As SGD does whose momentum never forgets: its step is the longer, the more there were before.
TEST(UsualProgress, AnOptimizerMayTakeItsTimeToGetGoing) {
  for (const double first : {1.0, 6.0, 24.0}) {
    UsualProgress usual;
    double steps_taken = 0;
    for (double steps = first; steps_taken < 500; steps = 24) {
      const double size = steps * (steps_taken + steps / 2);
      EXPECT_EQ(usual.limit(known(size), steps, kMost), 1) << first << " " << steps_taken;
      steps_taken += steps;
    }
  }
}

TEST(UsualProgress, ABurstIsBroughtDownAndDoesNotBecomeUsual) {
  UsualProgress usual;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(usual.limit(known(1), 12, kMost), 1);
  EXPECT_NEAR(usual.limit(known(1000), 12, kMost), 0.004, 1e-12);
  EXPECT_EQ(usual.limit(known(1), 12, kMost), 1);
  // A second one right after it may be as much larger as the first was, not more.
  EXPECT_NEAR(usual.limit(known(1000), 12, kMost), 0.016, 1e-3);
}

TEST(UsualProgress, WhatStaysLargeBecomesUsual) {
  UsualProgress usual;
  for (int i = 0; i < 10; ++i) usual.limit(known(1), 12, kMost);
  int limited = 0;
  for (int i = 0; i < 20; ++i) limited += usual.limit(known(1000), 12, kMost) < 1 ? 1 : 0;
  EXPECT_LE(limited, 5);  // 4^5 > 1000
}

TEST(UsualProgress, WhatRestedMayGoOn) {
  UsualProgress usual;
  for (int i = 0; i < 10; ++i) usual.limit(known(1), 12, kMost);
  for (int i = 0; i < 300; ++i) usual.limit(known(1e-4), 12, kMost);  // weight decay alone
  EXPECT_EQ(usual.limit(known(1), 12, kMost), 1);
}

// An unfrozen body beside a head: it is not judged at first, and usual from then on. What is known still is judged.
TEST(UsualProgress, WhatIsNewIsNoBurstButTheRestMayBe) {
  UsualProgress usual;
  for (int i = 0; i < 10; ++i) usual.limit(known(1), 12, kMost);
  EXPECT_EQ(usual.limit({1000, 1}, 12, kMost), 1);
  EXPECT_EQ(usual.limit(known(1100), 12, kMost), 1);
  EXPECT_NEAR(usual.limit(known(1e6), 12, kMost), 4400 / 1e6, 1e-4);
  UsualProgress other;
  for (int i = 0; i < 10; ++i) other.limit(known(1), 12, kMost);
  EXPECT_NEAR(other.limit({2000, 1000}, 12, kMost), 0.004, 1e-12);
  EXPECT_EQ(other.limit(known(8), 12, kMost), 1) << "what was new is usual as far as it has arrived";
}

TEST(UsualProgress, TheScaleDoesNotMatter) {
  for (const double scale : {1e-30, 1.0, 1e30}) {
    UsualProgress usual;
    for (const double size : {1.0, 3.0, 0.5, 2.0, 1.0, 3.9}) EXPECT_EQ(usual.limit(known(scale * size), 3, kMost), 1);
    EXPECT_LT(usual.limit(known(scale * 20), 3, kMost), 1);
  }
}

TEST(UsualProgress, RoundsOfAnyLengthAreUsual) {
  // Whether steps agree in direction (size ~ steps) or not (size ~ √steps), and whether rounds get longer or shorter.
  for (const double power : {1.0, 0.5}) {
    UsualProgress usual;
    for (const double steps : {4.0, 65.0, 4.0, 256.0, 1.0, 12.0}) {
      EXPECT_EQ(usual.limit(known(std::pow(steps, power)), steps, kMost), 1) << power << " " << steps;
    }
  }
}

TEST(UsualProgress, NothingAndNoNumberChangeNothing) {
  UsualProgress usual;
  for (int i = 0; i < 2; ++i) usual.limit(known(1), 12, kMost);
  for (const double size : {0.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(usual.limit(known(size), 12, kMost), 1);
  }
  EXPECT_LT(usual.limit(known(5), 12, kMost), 1);
}

TEST(UsualProgress, AnotherCutKeepsTheLargest) {
  UsualProgress small;
  UsualProgress large;
  small.limit(known(1), 4, kMost);
  for (int i = 0; i < 2; ++i) large.limit(known(30), 12, kMost);  // 10 per step
  UsualProgress both;
  both.include(small);
  both.include(large);
  both.include(UsualProgress());
  EXPECT_EQ(both.limit(known(60), 4, kMost), 1);  // 15 per step
  EXPECT_LT(both.limit(known(900), 4, kMost), 1);
}

}  // namespace
}  // namespace co2
