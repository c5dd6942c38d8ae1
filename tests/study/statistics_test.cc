#include "study/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace co2::study {
namespace {

TEST(Statistics, MeanAndDeviationByHand) {
  // 2, 4, 9: mean 5, squares 9 + 1 + 16 = 26, over n - 1: 13.
  const Sample sample = sample_of({2, 4, 9});
  EXPECT_EQ(sample.count, 3U);
  EXPECT_DOUBLE_EQ(sample.mean, 5);
  EXPECT_DOUBLE_EQ(sample.deviation, std::sqrt(13));
}

TEST(Statistics, OneRunHasNoDeviationAndNoneHasNoMean) {
  EXPECT_DOUBLE_EQ(sample_of({3}).mean, 3);
  EXPECT_TRUE(std::isnan(sample_of({3}).deviation));
  EXPECT_TRUE(std::isnan(sample_of({}).mean));
}

TEST(Statistics, StudentsTableAtFivePercent) {
  // The table that is in every textbook: |t| that is exceeded in 5 % of cases, both sides together.
  const double table[] = {12.7062, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.30600, 2.26216, 2.22814};
  for (int degrees = 1; degrees <= 10; ++degrees) {
    EXPECT_NEAR(student_p(table[degrees - 1], degrees), 0.05, 1e-6) << degrees;
    EXPECT_NEAR(student_p(-table[degrees - 1], degrees), 0.05, 1e-6) << degrees;
  }
  EXPECT_NEAR(student_p(2.75, 30), 0.01, 1e-5);
  EXPECT_NEAR(student_p(9.92484, 2), 0.01, 1e-7);
}

TEST(Statistics, StudentByHand) {
  // One degree is Cauchy's distribution: p = 1 - 2/π atan t. Two: p = 1 - t / √(2 + t²).
  EXPECT_NEAR(student_p(1, 1), 0.5, 1e-12);
  EXPECT_NEAR(student_p(2, 2), 1 - 2 / std::sqrt(6), 1e-12);
  EXPECT_NEAR(student_p(0, 7), 1, 1e-12);
}

TEST(Statistics, PairedTestByHand) {
  // Differences 1, 2, 3: mean 2, deviation 1, error 1/√3, t = 2 √3 with two degrees; p = 1 - t / √(2 + t²).
  const PairedTest test = paired_test({11, 22, 33}, {10, 20, 30});
  EXPECT_EQ(test.pairs, 3U);
  EXPECT_DOUBLE_EQ(test.difference, 2);
  EXPECT_NEAR(test.t, 2 * std::sqrt(3), 1e-12);
  EXPECT_NEAR(test.p, 1 - std::sqrt(12.0 / 14), 1e-12);  // 0.0742
  EXPECT_FALSE(test.significant());
}

TEST(Statistics, PairsSeeWhatSpreadsHide) {
  // The seeds differ by far more than the two rows, and yet the second is better with every seed.
  const PairedTest test = paired_test({2.31, 2.11, 2.52, 1.91}, {2.30, 2.10, 2.51, 1.90});
  EXPECT_TRUE(test.significant());
  EXPECT_NEAR(test.difference, 0.01, 1e-9);
}

TEST(Statistics, NothingFollowsFromOnePairAndEqualsAreEqual) {
  EXPECT_FALSE(paired_test({1}, {2}).significant());
  EXPECT_DOUBLE_EQ(paired_test({1, 2}, {1, 2}).p, 1);
  EXPECT_DOUBLE_EQ(paired_test({1.5, 2.5}, {1, 2}).p, 0);
}

}  // namespace
}  // namespace co2::study
