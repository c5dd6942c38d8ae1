#include "comm/buckets.h"

#include <gtest/gtest.h>

#include <random>

namespace co2 {
namespace {

// Defect 5: buckets that do not fill exactly must not drop anything.
void expect_exact_cover(std::int64_t numel, std::int64_t most) {
  const auto buckets = make_buckets(numel, most);
  std::int64_t next = 0;
  for (const Range& bucket : buckets) {
    EXPECT_EQ(bucket.begin, next) << numel << " elements in buckets of " << most;
    EXPECT_GE(bucket.size(), 1);
    EXPECT_LE(bucket.size(), most);
    next = bucket.end;
  }
  EXPECT_EQ(next, numel) << numel << " elements in buckets of " << most;
}

TEST(Buckets, CoverEveryElementOnceForOddSizes) {
  for (const std::int64_t numel : {0, 1, 3, 1023, 1024, 1025, 4097}) {
    for (const std::int64_t most : {1, 2, 3, 7, 1024, 1 << 20}) expect_exact_cover(numel, most);
  }
}

TEST(Buckets, CoverEveryElementOnceForRandomSizes) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    expect_exact_cover(static_cast<std::int64_t>(random() % 100'000), 1 + static_cast<std::int64_t>(random() % 5000));
  }
}

TEST(Buckets, AreOfAboutEqualSize) {
  for (const Range& bucket : make_buckets(1001, 250)) EXPECT_NEAR(static_cast<double>(bucket.size()), 200.2, 1);
}

}  // namespace
}  // namespace co2
