#include "sync/pace_control.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace co2 {
namespace {

constexpr double kStep = 0.2;

PaceLimits limits() { return {.max_local_steps = 256, .fragments = 4, .exchange_share = 0.02, .latency = 1e-4}; }

/// The plans that follow from a sequence of measured times.
std::vector<Plan> plans(PaceControl& control, const std::vector<RoundTimes>& times) {
  std::vector<Plan> result;
  for (const RoundTimes& t : times) result.push_back(control.next(t));
  return result;
}

int changes(const std::vector<Plan>& plans) {
  int count = 0;
  for (std::size_t i = 1; i < plans.size(); ++i) count += plans[i] == plans[i - 1] ? 0 : 1;
  return count;
}

TEST(PaceControl, TheFirstPlanHidesTheTransferWithAMarginAndNoMore) {
  for (const double transfer : {0.001, 0.1, 0.7, 3.3, 12.0, 30.0}) {
    PaceControl control(limits(), {12, 4});
    const Plan plan = control.next({kStep, transfer, 0});
    EXPECT_GE(plan.local_steps * kStep, PaceControl::kMargin * transfer);
    EXPECT_LT((plan.local_steps - plan.fragments) * kStep, PaceControl::kMargin * transfer);
    EXPECT_EQ(plan.local_steps % plan.fragments, 0);
    EXPECT_FALSE(control.bounded());
  }
}

TEST(PaceControl, OnAFastLinkTheCostOfAnExchangeDecides) {
  PaceControl control(limits(), {12, 4});
  const Plan plan = control.next({kStep, 0.01, 0.085});
  EXPECT_LE(0.085, 0.02 * plan.local_steps * kStep);
  EXPECT_GT(0.085, 0.02 * (plan.local_steps - plan.fragments) * kStep);
}

TEST(PaceControl, TheBoundHoldsAndIsReported) {
  PaceLimits narrow = limits();
  narrow.max_local_steps = 10;
  PaceControl control(narrow, {10, 4});
  const Plan plan = control.next({kStep, 3.3, 0});
  EXPECT_EQ(plan.local_steps, 10);
  EXPECT_TRUE(control.bounded());
  // With the link that the report asks for, the bound is just enough.
  PaceControl faster(narrow, {10, 4});
  faster.next({kStep, control.longest_hidden_transfer(), 0});
  EXPECT_FALSE(faster.bounded());
}

TEST(PaceControl, LatencyLimitsTheNumberOfFragments) {
  PaceLimits far = limits();
  far.latency = 0.1;
  PaceControl control(far, {12, 4});
  const Plan plan = control.next({kStep, 0.5, 0});
  EXPECT_EQ(plan.fragments, 2);
  EXPECT_EQ(plan.local_steps, 4);  // with less latency there would be four
  PaceControl longer(far, {12, 4});
  EXPECT_EQ(longer.next({kStep, 6, 0}).fragments, 4);  // a long round has room for four
  far.latency = 1;
  PaceControl farther(far, {12, 4});
  EXPECT_EQ(farther.next({kStep, 0.5, 0}).fragments, 1);
}

// One fragment per step while there are enough of them, and then as many as give all the same time, in rounds that are
// hardly longer than they must be.
TEST(PaceControl, FragmentsAreAsFreshAsTheirNumberAllows) {
  for (int wanted = 1; wanted <= 256; ++wanted) {
    PaceControl control(limits(), {12, 4});
    const Plan plan = control.next({kStep, (wanted - 0.5) * kStep / PaceControl::kMargin, 0});
    EXPECT_GE(plan.local_steps, wanted);
    EXPECT_LT(plan.local_steps, wanted + 4);
    EXPECT_LE(plan.local_steps, 256);
    if (wanted <= 4) {
      EXPECT_EQ(plan, (Plan{wanted, wanted}));
    }
    EXPECT_LE(plan.fragments, 4);
    EXPECT_EQ(plan.local_steps % plan.fragments, 0);
    EXPECT_EQ(plan.local_steps / plan.fragments, (wanted + 3) / 4);
  }
}

TEST(PaceControl, AFixedNumberOfFragmentsIsLeftAlone) {
  PaceLimits fixed = limits();
  fixed.fragments = 9;
  fixed.fixed_fragments = true;
  PaceControl control(fixed, {12, 9});
  for (const double transfer : {0.001, 1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 0.001, 0.001}) {
    const Plan plan = control.next({kStep, transfer, 0});
    EXPECT_EQ(plan.fragments, 9);
    EXPECT_GE(plan.local_steps, 9);
  }
}

TEST(PaceControl, TheFirstMeasurementReplacesTheGuess) {
  for (const double guessed : {0.3, 30.0}) {
    PaceControl control(limits(), {12, 4});
    control.guess({kStep, guessed, 0.001});
    const Plan plan = control.next({kStep, 3.3, 0.001});
    EXPECT_GE(plan.local_steps * kStep, PaceControl::kMargin * 3.3);
    EXPECT_LT((plan.local_steps - plan.fragments) * kStep, PaceControl::kMargin * 3.3);
  }
}

TEST(PaceControl, NoiseDoesNotChangeThePlan) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(0.92, 1.08);
  PaceControl control(limits(), {12, 4});
  std::vector<RoundTimes> times;
  for (int i = 0; i < 500; ++i) times.push_back({kStep * noise(random), 3.3 * noise(random), 0.08 * noise(random)});
  EXPECT_LE(changes(plans(control, times)), 2);
}

TEST(PaceControl, ACostThatIsMeasuredBadlyDoesNotMakeThePlanWander) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> noise(0.5, 1.5);  // what short rounds look like
  PaceControl control(limits(), {12, 4});
  std::vector<RoundTimes> times;
  for (int i = 0; i < 500; ++i) times.push_back({kStep, 0.1 * kStep, 24 * 0.02 * kStep * noise(random)});
  EXPECT_LE(changes(plans(control, times)), 45);  // well above 100 without a memory
  EXPECT_GE(control.plan().local_steps, 20);
  EXPECT_LE(control.plan().local_steps, 36);
}

TEST(PaceControl, ASpikeDoesNotChangeThePlan) {
  PaceControl control(limits(), {12, 4});
  std::vector<RoundTimes> times(20, {kStep, 3.3, 0.08});
  times[7].transfer = 60;
  times[13].step = 5;
  times[17].cost = 9;
  EXPECT_EQ(changes(plans(control, times)), 0);
}

TEST(PaceControl, ALastingChangeIsFollowedWithinTwoRoundsAndBackWithinThree) {
  PaceControl control(limits(), {12, 4});
  std::vector<RoundTimes> times(6, {kStep, 0.34, 0.02});
  times.insert(times.end(), 6, {kStep, 3.4, 0.02});
  times.insert(times.end(), 6, {kStep, 0.34, 0.02});
  const auto result = plans(control, times);
  EXPECT_EQ(changes(result), 2);
  EXPECT_GE(result[7].local_steps * kStep, PaceControl::kMargin * 3.4);
  EXPECT_EQ(result[14], result[0]);
}

TEST(PaceControl, SlowDriftIsFollowedWithoutGoingBackAndForth) {
  PaceControl control(limits(), {12, 4});
  std::vector<RoundTimes> times;
  for (int i = 0; i < 600; ++i) times.push_back({kStep, 0.5 * std::pow(1.01, i), 0});
  int last = 0;
  for (const Plan& plan : plans(control, times)) {
    EXPECT_GE(plan.local_steps, last);
    last = plan.local_steps;
  }
  EXPECT_TRUE(control.bounded());
}

TEST(PaceControl, TimesOnTheEdgeOfAPlanDoNotMakeItFlutter) {
  // Alternating between two values that want different plans: whatever the filter makes of it, it must come to rest.
  for (const double ratio : {1.05, 1.2, 1.5, 2.0, 5.0}) {
    PaceControl control(limits(), {12, 4});
    std::vector<RoundTimes> times;
    for (int i = 0; i < 200; ++i) times.push_back({kStep, i % 2 == 0 ? 2.0 : 2.0 * ratio, 0});
    const auto result = plans(control, times);
    const std::vector<Plan> settled(result.begin() + 10, result.end());
    EXPECT_EQ(changes(settled), 0) << ratio;
  }
}

TEST(PaceControl, TimesThatMeanNothingChangeNothing) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  PaceControl control(limits(), {12, 4});
  for (const RoundTimes& t : std::vector<RoundTimes>{{0, 1, 0},
                                                     {1, 0, 0},
                                                     {kNan, 1, 0},
                                                     {1, kNan, 0},
                                                     {1, 1, kNan},
                                                     {kInfinity, 1, 0},
                                                     {1, kInfinity, 0},
                                                     {-1, 1, 0}}) {
    EXPECT_EQ(control.next(t), (Plan{12, 4}));
  }
}

PaceLimits with_choice() {
  PaceLimits result = limits();
  result.wires = {{Wire::kInt4, 34.0 / 64}, {Wire::kInt2, 18.0 / 64}};
  return result;
}

/// A transfer in int4 that takes so many steps to hide.
RoundTimes hidden_by(double steps) { return {kStep, steps * kStep / PaceControl::kMargin, 0}; }

// Fewer bits only where more of them would make rounds long.
TEST(PaceControl, TheWireIsTheFirstThatMakesRoundsShort) {
  for (const auto& [steps, wire] : {std::pair{0.1, Wire::kInt4},
                                    {0.5, Wire::kInt4},
                                    {0.98, Wire::kInt4},
                                    {1.1, Wire::kInt2},
                                    {50.0, Wire::kInt2}}) {
    PaceControl control(with_choice(), {12, 4, Wire::kInt4});
    const Plan plan = control.next(hidden_by(steps));
    EXPECT_EQ(plan.wire, wire) << steps;
    EXPECT_GE(plan.local_steps * kStep, PaceControl::kMargin * control.transfer()) << steps;
  }
  PaceControl slow(with_choice(), {12, 4, Wire::kInt4});
  slow.next(hidden_by(40));
  EXPECT_NEAR(slow.transfer(), 18.0 / 34 * 40 * kStep / PaceControl::kMargin, 1e-3);  // what it will take
  EXPECT_NEAR(slow.plan().local_steps, 40 * 18.0 / 34, 4);                            // so rounds are shorter
}

TEST(PaceControl, TheWireDoesNotFlutter) {
  PaceControl control(with_choice(), {12, 4, Wire::kInt4});
  std::mt19937 random(1);
  std::vector<Plan> made;
  for (int round = 0; round < 200; ++round) {
    made.push_back(control.next(hidden_by(std::uniform_real_distribution<double>(0.85, 1.15)(random))));
  }
  int turns = 0;
  for (std::size_t i = 1; i < made.size(); ++i) turns += made[i].wire == made[i - 1].wire ? 0 : 1;
  EXPECT_LE(turns, 1);
  // A lasting change is followed, in both directions.
  for (int round = 0; round < 4; ++round) control.next(hidden_by(30));
  EXPECT_EQ(control.plan().wire, Wire::kInt2);
  for (int round = 0; round < 4; ++round) control.next(hidden_by(0.5));
  EXPECT_EQ(control.plan().wire, Wire::kInt4);
}

}  // namespace
}  // namespace co2
