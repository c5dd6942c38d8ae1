#pragma once

#include <c10/core/ScalarType.h>
#include <co2/options.h>
#include <co2/state.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "options/recipe.h"

namespace co2 {

/// What all workers agreed on after measuring a round, in seconds. Exchanges are counted for the whole model.
struct RoundTimes {
  double step = 0;      ///< computation of one optimizer step, on the slowest worker
  double transfer = 0;  ///< one exchange on the wire, as the worker saw it that was the last to join; in the form that
                        ///< is PaceLimits' first, whatever form it was measured in
  double cost = 0;      ///< what one exchange takes from the computation: outer passes, and cycles of the network stack
};

/// τ, P and the form of what is sent.
struct Plan {
  int local_steps = 1;
  int fragments = 1;
  Wire wire = Wire::kPlain;
  bool operator==(const Plan&) const = default;
};

/// A form that progress may be sent in.
struct WireChoice {
  Wire wire = Wire::kPlain;
  double element_bytes = 4;
};
/// Those that a recipe allows for parameters of a dtype: the one that is preferred first, those with fewer bytes after
/// it.
std::vector<WireChoice> wire_choices(const Recipe& recipe, at::ScalarType dtype);
/// The one of a wire; the first if it is none of them.
const WireChoice& choice_of(const std::vector<WireChoice>& choices, Wire wire);
/// How long an exchange that took so long takes with another number of bytes: latency does not depend on them.
double with_other_bytes(double seconds, double latency, double share);

struct PaceLimits {
  std::vector<WireChoice> wires = {{}};
  int max_local_steps = 256;
  int fragments = 4;  ///< as many as wanted, or, if fixed, exactly so many
  bool fixed_fragments = false;
  double exchange_share = 0.05;  ///< of the time, for `cost`
  double latency = 0;            ///< seconds that an exchange of nothing takes
};

/// Chooses τ, P and the wire. docs/choosing-local-steps.md says why the rules are what they are.
///
/// A pure function of the times that it is given, in their order: workers that give it the same times get the same
/// plans. Times that are not finite and positive (a first round without exchanges) change nothing.
class PaceControl {
 public:
  /// A transfer is given this many times its measured duration.
  static constexpr double kMargin = 1.3;
  /// A wire of fewer bits is taken only where the one before would need longer rounds than this.
  static constexpr double kShortRound = 1;

  PaceControl(const PaceLimits& limits, Plan start);

  /// The first plan, from a guess: the first measurement replaces it.
  Plan guess(const RoundTimes& times);
  /// The plan for a round, given what was measured in an earlier one.
  Plan next(const RoundTimes& times);

  const Plan& plan() const { return plan_; }
  /// The times that the plan was made from: medians over the last rounds.
  const RoundTimes& times() const { return typical_; }
  /// How long an exchange takes in the plan's form.
  double transfer() const { return transfer(typical_, choice_of(limits_.wires, plan_.wire)); }
  /// True while τ would have to be larger than allowed.
  bool bounded() const { return bounded_; }
  /// How long a transfer may take so that the largest allowed τ hides it.
  double longest_hidden_transfer() const { return limits_.max_local_steps * typical_.step / kMargin; }

  void visit(StateVisitor& visitor, const std::string& name);

 private:
  double transfer(const RoundTimes& times, const WireChoice& wire) const;
  double to_hide(const RoundTimes& times, const WireChoice& wire) const;
  const WireChoice& wanted_wire(const std::vector<RoundTimes>& last, bool first) const;
  Plan in_equal_parts(int local_steps, Wire wire) const;

  PaceLimits limits_;
  Plan plan_;
  std::deque<RoundTimes> recent_;
  RoundTimes typical_;
  bool bounded_ = false;
};

}  // namespace co2
