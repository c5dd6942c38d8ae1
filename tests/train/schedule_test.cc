#include "train/schedule.h"

#include <co2/error.h>
#include <gtest/gtest.h>

#include "support/temporary.h"

namespace co2::train {
namespace {

TEST(RateSchedule, WarmsUpLinearlyAndNeverStartsAtZero) {
  const RateSchedule schedule("constant", 2.0, 100, 0.04, 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(1), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(3), 2.0);
  EXPECT_DOUBLE_EQ(schedule.at(99), 2.0);
  EXPECT_GT(RateSchedule("cosine", 1.0, 10, 1.0, 0.0).at(0), 0);
}

TEST(RateSchedule, LinearAndCosineEndAtTheFinalRate) {
  const RateSchedule linear("linear", 1.0, 101, 0, 0.2);
  EXPECT_DOUBLE_EQ(linear.at(0), 1.0);
  EXPECT_DOUBLE_EQ(linear.at(50), 0.6);
  EXPECT_DOUBLE_EQ(linear.at(100), 0.2);
  const RateSchedule cosine("cosine", 1.0, 101, 0, 0.2);
  EXPECT_DOUBLE_EQ(cosine.at(0), 1.0);
  EXPECT_NEAR(cosine.at(25), 0.2 + 0.8 * 0.5 * (1 + 0.70710678118654752), 1e-12);
  EXPECT_NEAR(cosine.at(50), 0.6, 1e-12);
  EXPECT_DOUBLE_EQ(cosine.at(100), 0.2);
  EXPECT_DOUBLE_EQ(cosine.at(1000), 0.2);  // beyond the end it stays
}

TEST(RateSchedule, OneStepIsTakenAtTheFullRate) {
  for (const auto& shape : RateSchedule::shapes()) EXPECT_DOUBLE_EQ(RateSchedule(shape, 0.5, 1, 0, 0.1).at(0), 0.5);
}

TEST(RateSchedule, UnknownShapeNamesTheClosest) {
  const auto message = test::message_of<OptionError>([] { RateSchedule("cosinus", 1, 10, 0, 0); });
  EXPECT_NE(message.find("did you mean 'cosine"), std::string::npos) << message;
}

}  // namespace
}  // namespace co2::train
