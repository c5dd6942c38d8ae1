#include "sync/round.h"

#include <gtest/gtest.h>

#include <vector>

namespace co2 {
namespace {

TEST(Round, AWholeModelIsLaunchedAtTheEndAndAppliedAtTheEndOfTheNext) {
  const Round round{.number = 3, .begin = 36, .local_steps = 12, .fragments = 1};
  const Round next{.number = 4, .begin = 48, .local_steps = 20, .fragments = 1};
  EXPECT_EQ(round.end(), 48);
  EXPECT_EQ(round.launch_step(0), 48);
  EXPECT_EQ(round.following_launch(0, next), 68);
}

/// Rounds of changing lengths and numbers of fragments, one after the other.
std::vector<Round> sequence(const std::vector<std::pair<int, int>>& plans) {
  std::vector<Round> rounds;
  std::int64_t begin = 0;
  for (const auto& [local_steps, fragments] : plans) {
    rounds.push_back({static_cast<std::int64_t>(rounds.size()), begin, local_steps, fragments});
    begin += local_steps;
  }
  return rounds;
}

TEST(Round, OneFragmentIsOnTheWireAtAnyTimeAlsoWhenThePlanChanges) {
  std::vector<std::pair<int, int>> plans;
  for (const int local_steps : {1, 2, 7, 10, 48, 3}) {
    for (int fragments = 1; fragments <= local_steps; ++fragments) plans.emplace_back(local_steps, fragments);
  }
  const auto rounds = sequence(plans);
  std::int64_t applied_until = 0;  // the step at which the newest exchange is applied
  for (std::size_t r = 0; r + 1 < rounds.size(); ++r) {
    for (int f = 0; f < rounds[r].fragments; ++f) {
      const std::int64_t launch = rounds[r].launch_step(f);
      EXPECT_GT(launch, rounds[r].begin);
      EXPECT_LE(launch, rounds[r].end());
      if (applied_until > 0) {
        EXPECT_EQ(launch, applied_until) << "round " << r << " fragment " << f;
      }
      applied_until = rounds[r].following_launch(f, rounds[r + 1]);
      EXPECT_GT(applied_until, launch);
    }
    EXPECT_EQ(rounds[r].launch_step(rounds[r].fragments - 1), rounds[r].end());
  }
}

}  // namespace
}  // namespace co2
