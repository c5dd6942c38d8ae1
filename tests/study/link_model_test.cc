#include "study/link_model.h"

#include <gtest/gtest.h>

namespace co2::study {
namespace {

// 0.3 s of computation; 1.25 MB at 100 Mbit/s are 0.1 s, ten times as many 1 s.
constexpr double kCompute = 0.3;
constexpr double kRate = 100e6;
constexpr double kLittle = 1.25e6;
constexpr double kMuch = 12.5e6;

TEST(LinkModel, WhoWaitsForWhat) {
  EXPECT_DOUBLE_EQ(step_seconds(Pattern::kNothing, kCompute, 0, kRate), 0.3);
  EXPECT_DOUBLE_EQ(step_seconds(Pattern::kBlocking, kCompute, kLittle, kRate), 0.4);
  EXPECT_DOUBLE_EQ(step_seconds(Pattern::kOverlapped, kCompute, kLittle, kRate), 0.3);
  EXPECT_DOUBLE_EQ(step_seconds(Pattern::kOverlapped, kCompute, kMuch, kRate), 1);
}

TEST(LinkModel, BackwardHidesWhatItCan) {
  EXPECT_NEAR(step_seconds(Pattern::kBackward, kCompute, kLittle, kRate), 0.3, 1e-12);  // 0.1 s behind 0.2 s
  EXPECT_NEAR(step_seconds(Pattern::kBackward, kCompute, kMuch, kRate), 0.1 + 1, 1e-12);
}

TEST(LinkModel, PatternsOfStrategies) {
  EXPECT_EQ(pattern_of("none", false), Pattern::kNothing);
  EXPECT_EQ(pattern_of("ddp", false), Pattern::kBackward);
  EXPECT_EQ(pattern_of("diloco", true), Pattern::kBlocking);
  EXPECT_EQ(pattern_of("co2", false), Pattern::kOverlapped);
}

}  // namespace
}  // namespace co2::study
