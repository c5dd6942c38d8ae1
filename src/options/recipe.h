#pragma once

#include <co2/options.h>

namespace co2 {

/// An Options with every blank filled in and checked: what the mechanism runs on. It never changes: what is chosen
/// while training is the Round's.
struct Recipe {
  enum class Exchange { kNothing, kGradients, kProgress };
  Strategy strategy = Strategy::kCo2;
  Exchange exchange = Exchange::kProgress;
  int local_steps = 12;  ///< of the first round; all others have as many unless `adaptive`
  bool adaptive = false;
  bool fixed_fragments = false;  ///< the user's number, which adapting leaves alone
  int max_local_steps = 256;
  double exchange_share = 0.05;
  int fragments = 1;
  std::optional<int> delay = {};  ///< empty: until the next fragment is launched, so that one is always on the wire
  double outer_rate = 1;
  double momentum = 0;
  int momentum_from = 1;  ///< rounds of fewer steps have none (momentum_of())
  bool nesterov = false;
  bool rate_units = false;  ///< momentum in units of the inner rate, so that a schedule does not distort it
  bool penalty = false;
  double clip = 0;  ///< 0 is off
  ClipMode clip_mode = ClipMode::kUsual;
  Restart restart = Restart::kPaper;
  double mix = 0;
  bool eager = false;          ///< workers run ahead of the consensus by their own part of what is on its way (eager.h)
  Wire wire = Wire::kPlain;    ///< of the first round, never kAuto; all others have the same unless `adaptive_wire`
  bool adaptive_wire = false;  ///< int4 or int2, chosen with τ
  int agree_moments = 0;
  double rate_factor = 0;  ///< 0: as measured
  bool checksum = false;
  int accumulation_steps = 1;
  std::int64_t bucket_bytes = 25 << 20;
  int island_size = 1;
  int zero = 0;
  Compute compute = Compute::kPlain;
};

/// The outer momentum of a round of so many steps: it helps long rounds and harms short ones, so unless the user has
/// set one, `co2` has none below sixteen (docs/choosing-local-steps.md).
double momentum_of(const Recipe& recipe, int local_steps);

/// Fills in the strategy's values and checks all of it; throws OptionError that names the option, value and range.
Recipe resolve(const Options& options);

}  // namespace co2
