#include "base/median.h"

#include <gtest/gtest.h>

#include "base/spread.h"

namespace co2 {
namespace {

TEST(Median, TheTwoDefinitionsDifferForEvenCountsOnly) {
  EXPECT_EQ(upper_median({3, 1, 2}), 2);
  EXPECT_EQ(spread_of({3, 1, 2}).median, 2);
  EXPECT_EQ(upper_median({4, 1, 2, 3}), 3);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(upper_median({7}), 7);
}

}  // namespace
}  // namespace co2
