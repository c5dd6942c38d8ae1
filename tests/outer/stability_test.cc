// The paper's delayed recursion is stable exactly when β + αc/Λ < 1 (docs/algorithm.md), for a quadratic whose rounds
// contract by c and a constant gap Λ. A round's progress is then c x, and it is applied one round late:
//     m = β m + c x_before / (Λγ),  x = x - αγ m
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "outer/outer_pass.h"

namespace co2::outer {
namespace {

struct Setting {
  double momentum;    // β
  double outer_rate;  // α
  double gap;         // Λ
  /// The c for which β + αc/Λ is `sum`.
  double contraction(double sum) const { return (sum - momentum) * gap / outer_rate; }
};

/// How far from the optimum the consensus is in the last of many rounds, if it starts at 1.
double last_distance(const Setting& setting, double contraction) {
  constexpr double kInnerRate = 0.1;  // γ
  constexpr int kRounds = 2000;
  constexpr int kLast = 20;  // more than half an oscillation
  const at::Tensor consensus = at::ones({1});
  const at::Tensor live = at::ones({1});
  const at::Tensor momentum = at::zeros({1});
  at::Tensor in_flight = at::zeros({1});
  at::Tensor measured = at::empty({1});
  const Move move{.progress_scale = 1 / (setting.gap * kInnerRate),
                  .momentum = setting.momentum,
                  .rate = setting.outer_rate * kInnerRate,
                  .restart = Restart::kPaper};
  double distance = 0;
  for (int round = 0; round < kRounds; ++round) {
    live.mul_(1 - contraction);
    launch(consensus, live, 1, measured, {});
    apply(in_flight, momentum, consensus, {}, live, move, false);
    std::swap(in_flight, measured);
    const double now = std::abs(consensus.item<double>());
    if (now > 1e6) return now;  // long before it overflows
    if (round >= kRounds - kLast) distance = std::max(distance, now);
  }
  return distance;
}

TEST(Stability, ThePapersRuleConvergesJustInsideItsBoundAndDivergesJustOutside) {
  for (const Setting& setting : {Setting{0, 3, 2.5}, {0.2, 2, 1.5}, {0.5, 1.5, 2}, {0.7, 1, 3}}) {
    SCOPED_TRACE(testing::Message() << "β " << setting.momentum << " α " << setting.outer_rate << " Λ " << setting.gap);
    // The distance changes by the square root of that sum per round, which is e^±10 in all of them.
    const double inside = setting.contraction(0.99);
    EXPECT_LT(last_distance(setting, inside), 0.01);
    EXPECT_GT(last_distance(setting, setting.contraction(1.01)), 100);
    // It is the gap that makes it stable.
    Setting without = setting;
    without.gap = 1;
    EXPECT_GT(last_distance(without, inside), 100);
  }
}

}  // namespace
}  // namespace co2::outer
