#include "sync/schedule.h"

#include <gtest/gtest.h>

namespace co2 {
namespace {

TEST(Schedule, AWholeModelIsLaunchedAtTheEndOfARoundAndAppliedARoundLater) {
  const Schedule schedule(12, 1, std::nullopt);
  for (int step = 1; step <= 48; ++step) EXPECT_EQ(schedule.launches(0, step), step % 12 == 0);
  EXPECT_EQ(schedule.delay(0), 12);
}

TEST(Schedule, OneFragmentIsOnTheWireAtAnyTime) {
  for (const int local_steps : {1, 2, 7, 10, 12, 48}) {
    for (int fragments = 1; fragments <= local_steps; ++fragments) {
      const Schedule schedule(local_steps, fragments, std::nullopt);
      int launches = 0;
      int under_way = 0;
      std::vector<int> apply_at(static_cast<std::size_t>(fragments), -1);
      for (int step = 1; step <= 4 * local_steps; ++step) {
        for (int f = 0; f < fragments; ++f) {
          auto& apply = apply_at[static_cast<std::size_t>(f)];
          if (apply == step) --under_way;
        }
        for (int f = 0; f < fragments; ++f) {
          if (!schedule.launches(f, step)) continue;
          ++launches;
          ++under_way;
          EXPECT_GE(schedule.delay(f), 1);
          apply_at[static_cast<std::size_t>(f)] = step + schedule.delay(f);
        }
        if (launches > 0) {
          EXPECT_EQ(under_way, 1) << local_steps << "/" << fragments << " step " << step;
        }
      }
      EXPECT_EQ(launches, 4 * fragments);
    }
  }
}

TEST(Schedule, RoundsHaveLocalStepsSteps) {
  const Schedule schedule(3, 1, 0);
  EXPECT_EQ(schedule.round(1), 0);
  EXPECT_EQ(schedule.round(3), 0);
  EXPECT_EQ(schedule.round(4), 1);
}

}  // namespace
}  // namespace co2
