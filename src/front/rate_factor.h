#pragma once

#include <co2/cluster.h>
#include <co2/state.h>
#include <torch/optim/optimizer.h>

#include <optional>
#include <vector>

#include "front/gradient_agreement.h"
#include "options/recipe.h"
#include "sync/control_channel.h"

namespace co2 {

/// How many times the rate that the inner optimizer was given each worker takes: a number that the user has set, or, so
/// that nobody who comes from `ddp` has to know about it, as much as short rounds lack with Adam
/// (gradient_agreement.h). The same on all workers: it is made of sums over all of them.
///
/// Thread safety: used by the training thread.
class RateFactor {
 public:
  RateFactor(const Cluster& cluster, const Recipe& recipe, torch::optim::Optimizer& optimizer);

  /// In rounds of so many steps. Long ones have outer momentum instead.
  double at(int local_steps) const;

  /// When the gradients of a step are final, before the optimizer uses them; not in a step that is skipped.
  void look();
  /// At the end of every step, skipped or not.
  void after_step();

  void visit(StateVisitor& visitor);
  /// Takes over what a run of another layout knew, but not what was on its way there.
  void adopt(StateVisitor& visitor);

 private:
  const Recipe recipe_;
  torch::optim::Optimizer& optimizer_;
  bool watches_ = false;                        // gradients
  std::optional<GradientAgreement> agreement_;  // where it matters, so that it is in every checkpoint
  std::optional<ControlChannel> channel_;       // for it
  std::int64_t steps_ = 0;
  std::vector<double> sample_;  // of this step; empty: there is none
};

/// Gives an optimizer so many times its rates while it makes a step. One that changes them itself in the meantime, as a
/// schedule inside of it does, changes the product: what is left without the factor is what it gets back.
class ScaledRates {
 public:
  ScaledRates(torch::optim::Optimizer& optimizer, double factor);
  ~ScaledRates();
  ScaledRates(const ScaledRates&) = delete;
  ScaledRates& operator=(const ScaledRates&) = delete;

 private:
  struct Rates {
    double given, scaled;
  };
  torch::optim::Optimizer& optimizer_;
  const double factor_;
  std::vector<Rates> rates_;  // none: they are left alone
};

}  // namespace co2
