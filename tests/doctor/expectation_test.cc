#include "doctor/expectation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "options/recipe.h"

namespace co2::doctor {
namespace {

/// 40 MB over 100 Mbit/s with steps of 0.2 s.
Situation slow_link() {
  return {.workers = 2,
          .units_per_step = 1000,
          .step = 0.2,
          .transfer = 3.2,
          .plain_transfer = 3.2,
          .outer = 0.01,
          .cycles = 0.06,
          .plain_cycles = 0.06,
          .latency = 1e-3,
          .wire_bytes = 40'000'000};
}

Recipe recipe(int max_local_steps = 256) { return resolve({.max_local_steps = max_local_steps, .wire = Wire::kPlain}); }

double of_none(const std::vector<Expectation>& all, Strategy strategy) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& e) { return e.strategy == strategy; });
  EXPECT_NE(found, all.end());
  return found->of_none;
}

TEST(Expectation, TheRecommendationIsThatOfTheAutomaticChoice) {
  const Situation s = slow_link();
  PaceControl control({.max_local_steps = 256, .fragments = 4, .exchange_share = 0.05, .latency = s.latency}, {12, 4});
  const Plan plan = control.next({s.step, s.transfer, s.outer + s.cycles});
  const Recommendation r = recommend(s, recipe());
  EXPECT_EQ(r.plan, plan);
  EXPECT_FALSE(r.bounded);
  EXPECT_EQ(r.bits_per_second_needed, 0);
  EXPECT_DOUBLE_EQ(r.cost_share, 0.07 / (r.plan.local_steps * 0.2));
  const std::string text = in_words(r, s, recipe());
  EXPECT_NE(text.find("--local-steps 24"), std::string::npos) << text;
  EXPECT_NE(text.find("4 fragments"), std::string::npos) << text;
}

TEST(Expectation, ABoundNamesTheBandwidthThatWouldDo) {
  Situation s = slow_link();
  s.cycles = s.outer = 0;
  const Recipe narrow = recipe(10);
  const Recommendation r = recommend(s, narrow);
  EXPECT_TRUE(r.bounded);
  EXPECT_EQ(r.plan.local_steps, 10);
  const std::string text = in_words(r, s, narrow);
  for (const char* part : {"--max-local-steps 10", "208 Mbit/s", "100 Mbit/s", "--wire int2"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  // With that bandwidth, the bound is just enough.
  s.transfer = 8.0 * static_cast<double>(s.wire_bytes) / r.bits_per_second_needed;
  EXPECT_FALSE(recommend(s, narrow).bounded);
}

TEST(Expectation, ABoundByCostAsksForNoBandwidth) {
  Situation s = slow_link();
  s.transfer = 0.01;
  s.cycles = 10;
  const Recommendation r = recommend(s, recipe());
  EXPECT_TRUE(r.bounded);
  EXPECT_EQ(r.bits_per_second_needed, 0);
  const std::string text = in_words(r, s, recipe());
  EXPECT_NE(text.find("--exchange-share"), std::string::npos) << text;
  EXPECT_EQ(text.find("bit/s"), std::string::npos) << text;
}

TEST(Expectation, ThroughputFollowsTheFormulas) {
  const Situation s = slow_link();
  const auto all = expect(s, {24, 4, Wire::kPlain}, Wire::kPlain);
  ASSERT_EQ(all.size(), all_strategies().size());
  EXPECT_DOUBLE_EQ(all[0].units_per_second, 2 * 1000 / 0.2);
  EXPECT_DOUBLE_EQ(of_none(all, Strategy::kNone), 1);
  EXPECT_DOUBLE_EQ(of_none(all, Strategy::kDdp), 0.2 / (0.2 + 3.2 - 0.4 / 3));
  for (const Strategy blocking : {Strategy::kLocalSgd, Strategy::kSlowMo, Strategy::kDiLoCo}) {
    EXPECT_DOUBLE_EQ(of_none(all, blocking), 4.8 / (4.8 + 3.2 + 0.01));
  }
  for (const Strategy hidden : {Strategy::kStreamingDiLoCo, Strategy::kEagerDiLoCo, Strategy::kOverlapLocalSgd,
                                Strategy::kCo2Paper, Strategy::kCo2}) {
    EXPECT_DOUBLE_EQ(of_none(all, hidden), 4.8 / (4.8 + 0.07));
  }
  // Too few steps for the link: it decides.
  EXPECT_NEAR(of_none(expect(s, {8, 4, Wire::kPlain}, Wire::kPlain), Strategy::kCo2), 1.6 / (3.2 + 0.07), 1e-12);
}

/// A forecast with a wire that a strategy refuses is one of a run that nobody can have.
TEST(Expectation, EveryStrategyIsExpectedWithTheWireThatItWouldHave) {
  const Situation s = slow_link();
  const auto blocking = [](double transfer) { return 1.6 / (1.6 + transfer + 0.01); };
  const auto hidden = [](double transfer, double cycles) { return 1.6 / (std::max(1.6, transfer) + 0.01 + cycles); };
  const auto with = [&](double bits) { return s.latency + (s.plain_transfer - s.latency) * bits / 32; };
  for (const Wire asked : {Wire::kAuto, Wire::kInt2, Wire::kInt4, Wire::kBfloat16, Wire::kPlain}) {
    const Plan plan{8, 4, asked == Wire::kAuto ? Wire::kInt2 : asked};
    const auto all = expect(s, plan, asked);
    for (const Strategy strategy : all_strategies()) {
      if (strategy == Strategy::kNone || strategy == Strategy::kDdp) continue;
      const bool mixes = strategy == Strategy::kStreamingDiLoCo || strategy == Strategy::kOverlapLocalSgd;
      const bool rounds = strategy == Strategy::kCo2 || (mixes && asked != Wire::kAuto);  // the others refuse to
      const double bits = asked == Wire::kBfloat16           ? 16
                          : asked == Wire::kPlain || !rounds ? 32
                          : asked == Wire::kInt4             ? 4.25
                                                             : 2.25;
      const bool waits =
          strategy == Strategy::kLocalSgd || strategy == Strategy::kSlowMo || strategy == Strategy::kDiLoCo;
      EXPECT_DOUBLE_EQ(of_none(all, strategy), waits ? blocking(with(bits)) : hidden(with(bits), 0.06 * bits / 32))
          << name(strategy) << " with " << name(asked);
    }
  }
}

TEST(Expectation, GradientsHideBehindBackwardButTakeCycles) {
  Situation s = slow_link();
  s.plain_transfer = 0.1;  // less than backward takes
  EXPECT_DOUBLE_EQ(of_none(expect(s, {12, 4, Wire::kPlain}, Wire::kPlain), Strategy::kDdp), 0.2 / 0.26);
  s.cycles = 0.03;  // half as many for --wire bfloat16, but gradients do not travel so
  EXPECT_DOUBLE_EQ(of_none(expect(s, {12, 4, Wire::kPlain}, Wire::kPlain), Strategy::kDdp), 0.2 / 0.26);
  s.plain_cycles = 0;
  EXPECT_DOUBLE_EQ(of_none(expect(s, {12, 4, Wire::kPlain}, Wire::kPlain), Strategy::kDdp), 1);
}

TEST(Expectation, NonsenseInGivesNoNonsenseOut) {
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double bad : {0.0, -1.0, infinite, std::nan("")}) {
    for (double Situation::*field : {&Situation::step, &Situation::transfer, &Situation::cycles, &Situation::latency}) {
      Situation s = slow_link();
      s.*field = bad;
      const Recommendation r = recommend(s, recipe());
      EXPECT_GE(r.plan.local_steps, 1);
      EXPECT_LE(r.plan.local_steps, 256);
      EXPECT_GE(r.plan.fragments, 1);
      EXPECT_EQ(expect(s, r.plan, Wire::kAuto).size(), all_strategies().size());
    }
  }
}

TEST(Expectation, MemoryIsCountedInCopiesOfTheModel) {
  const Plan plan{4, 4, Wire::kPlain};
  const MemoryNeed need = memory_need(1'000'000, plan, 2, 100e6);
  EXPECT_DOUBLE_EQ(need.state, 6.5 * 4e6);
  EXPECT_DOUBLE_EQ(need.rest, 100e6 - 8 * 4e6);  // measured with one fragment
  EXPECT_DOUBLE_EQ(memory_need(1'000'000, {4, 1, Wire::kPlain}, 2, 100e6).total(), 100e6);
  EXPECT_EQ(memory_need(1'000'000, plan, 2, 0).rest, 0);
  // In blocks there is what rounding leaves behind, and little in flight; alone nothing is rounded.
  EXPECT_DOUBLE_EQ(memory_need(1'000'000, {4, 4, Wire::kInt4}, 2, 100e6).state, (7 + 3.5 * 4.25 / 32 / 4) * 4e6);
  EXPECT_DOUBLE_EQ(memory_need(1'000'000, {4, 4, Wire::kInt4}, 1, 100e6).state, 6.5 * 4e6);
  EXPECT_LT(least_memory(1'000'000), need.total());
}

}  // namespace
}  // namespace co2::doctor
