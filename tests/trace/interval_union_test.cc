#include "trace/interval_union.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace co2 {
namespace {

Clock::time_point at(int seconds) { return Clock::time_point(std::chrono::seconds(seconds)); }

TEST(IntervalUnion, CountsTimeOnceInAnyOrder) {
  IntervalUnion intervals;
  intervals.add(at(10), at(12));
  intervals.add(at(20), at(25));
  EXPECT_EQ(intervals.seconds(), 7);
  intervals.add(at(11), at(21));  // joins them
  EXPECT_EQ(intervals.seconds(), 15);
  intervals.add(at(1), at(3));  // late, and before all of them
  EXPECT_EQ(intervals.seconds(), 17);
  intervals.add(at(13), at(14));  // inside
  intervals.add(at(5), at(5));    // nothing
  EXPECT_EQ(intervals.seconds(), 17);
  intervals.add(at(3), at(10));  // touches both neighbours
  EXPECT_EQ(intervals.seconds(), 24);
}

TEST(IntervalUnion, AgreesWithCountingSeconds) {
  std::mt19937 random(1);
  for (int run = 0; run < 50; ++run) {
    IntervalUnion intervals;
    std::set<int> covered;
    for (int i = 0; i < 40; ++i) {
      const int begin = static_cast<int>(random() % 200);
      const int end = begin + static_cast<int>(random() % 12);
      intervals.add(at(begin), at(end));
      for (int second = begin; second < end; ++second) covered.insert(second);
    }
    EXPECT_EQ(intervals.seconds(), static_cast<double>(covered.size()));
  }
}

}  // namespace
}  // namespace co2
