#include "sync/residue.h"

#include <gtest/gtest.h>

namespace co2 {
namespace {

TEST(Residue, MakesNoDifferenceWhileNothingChanges) {
  Residue residue;
  for (const double all : {3.0, 4.0, 2.0, 5.0}) {
    EXPECT_DOUBLE_EQ(residue.size_of(all, 0.1, 1), all / 0.1);
    residue = {0.75 * all, 0.75 * all / 0.1};
  }
}

TEST(Residue, KeepsTheUnitsOfItsTime) {
  const Residue residue{3, 30};
  for (const double rate : {1e-6, 1e-3, 0.1, 10.0}) {  // as much fresh progress as a step makes at that rate
    EXPECT_NEAR(residue.size_of(3 + rate, rate, 1), 31, 1e-8) << rate;
  }
  EXPECT_DOUBLE_EQ(residue.size_of(3 + 50 * 0.1, 0.1, 50), 31);  // of fifty rounds in which nothing was sent
}

TEST(Residue, WhatIsNotFreshIsOld) {
  const Residue residue{3, 30};
  EXPECT_DOUBLE_EQ(residue.size_of(2, 0.001, 1), 20);
  EXPECT_EQ(residue.size_of(0, 0.001, 1), 0);
  EXPECT_DOUBLE_EQ(residue.size_of(4, 0, 1), 30);  // nothing can be made at no rate
  EXPECT_EQ(Residue{}.size_of(4, 0, 1), 0);
}

TEST(Residue, TellsWhatIsFreshUnlessItOutweighsIt) {
  const Residue steady{0.95, 9.5};  // next to all of what there was, at the rate that there still is
  EXPECT_TRUE(steady.tells_what_is_fresh(1, 0.1, 1));
  EXPECT_TRUE(steady.tells_what_is_fresh(1, 0.08, 1));
  EXPECT_FALSE(steady.tells_what_is_fresh(1, 0.001, 1));   // of a time of higher rates
  EXPECT_TRUE(steady.tells_what_is_fresh(100, 0.001, 1));  // but what comes now is far more
  EXPECT_TRUE(steady.tells_what_is_fresh(1, 10, 1));
  EXPECT_TRUE(steady.tells_what_is_fresh(1, 0, 1));
  EXPECT_TRUE(Residue{}.tells_what_is_fresh(1, 1e-9, 1));
}

TEST(Residue, IsSharedByItsElements) {
  const Residue whole{5, 50};
  Residue halves;
  halves.include(whole, 0.5);
  EXPECT_DOUBLE_EQ(halves.norm * halves.norm, 12.5);
  halves.include(whole, 0.5);
  EXPECT_DOUBLE_EQ(halves.norm, whole.norm);
  EXPECT_DOUBLE_EQ(halves.size, whole.size);
}

}  // namespace
}  // namespace co2
