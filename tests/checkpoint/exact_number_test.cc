#include "checkpoint/exact_number.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace co2::checkpoint {
namespace {

void expect_same_bits(double value) {
  const auto text = exact_text(value);
  const auto back = exact_double(text);
  ASSERT_TRUE(back) << text;
  EXPECT_EQ(std::bit_cast<std::uint64_t>(*back), std::bit_cast<std::uint64_t>(value)) << text;
}

TEST(ExactNumber, EveryDoubleComesBackBitForBit) {
  using Limits = std::numeric_limits<double>;
  for (const double value : {0.0, -0.0, 1.0, 0.1, 1e22, 1.0 / 3, Limits::min(), Limits::denorm_min(), -Limits::max(),
                             Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN(),
                             Limits::signaling_NaN(), std::nextafter(1.0, 2.0)}) {
    expect_same_bits(value);
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) expect_same_bits(std::bit_cast<double>(random()));
}

TEST(ExactNumber, CanBeReadByAPerson) {
  EXPECT_EQ(exact_text(0.1), "0.1");
  EXPECT_EQ(exact_text(-2.5e-300), "-2.5e-300");
  EXPECT_EQ(exact_text(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(exact_text(std::numeric_limits<double>::quiet_NaN()), "nan:7ff8000000000000");
  EXPECT_EQ(exact_text(std::int64_t{-12}), "-12");
}

TEST(ExactNumber, EveryIntegerComesBack) {
  using Limits = std::numeric_limits<std::int64_t>;
  for (const auto value : {Limits::min(), Limits::max(), std::int64_t{0}, std::int64_t{-1}}) {
    EXPECT_EQ(exact_int64(exact_text(value)), value);
  }
}

TEST(ExactNumber, OtherTextsAreNoNumbers) {
  for (const char* text : {"",
                           " ",
                           "1 ",
                           " 1",
                           "+1",
                           "01",
                           "1.0",
                           "1.",
                           ".5",
                           "1e400",
                           "0x1p3",
                           "nan",
                           "NaN",
                           "-nan",
                           "nan:",
                           "nan:7ff8",
                           "nan:3ff0000000000000",
                           "nan:7FF8000000000000",
                           "infinity",
                           "INF",
                           "1e5x",
                           "0.10",
                           "1e22"}) {
    EXPECT_FALSE(exact_double(text)) << text;
  }
  for (const char* text : {"", "-", "-0", "+1", "007", "1.0", "9223372036854775808", "12a", "0x10"}) {
    EXPECT_FALSE(exact_int64(text)) << text;
  }
}

}  // namespace
}  // namespace co2::checkpoint
