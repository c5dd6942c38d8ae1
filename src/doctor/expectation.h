#pragma once

#include <co2/options.h>

#include <cstdint>
#include <string>
#include <vector>

#include "options/recipe.h"
#include "sync/pace_control.h"

namespace co2::doctor {

/// The measured numbers that decide how fast training will be, in seconds. docs/doctor.md has the formulas.
struct Situation {
  int workers = 1;
  double units_per_step = 0;    ///< of one worker
  double step = 0;              ///< c: one optimizer step, on the slowest worker
  double transfer = 0;          ///< T: the whole model on the wire
  double plain_transfer = 0;    ///< T of gradients, which have no wire format
  double outer = 0;             ///< O: launch and apply passes over the whole model
  double cycles = 0;            ///< N: processor time of the network stack that training lacks; 0 with cores to spare
  double plain_cycles = 0;      ///< N of gradients
  double latency = 0;           ///< L: an exchange of nothing
  std::int64_t wire_bytes = 0;  ///< that a worker sends for T
};

/// What `--local-steps auto` would choose.
struct Recommendation {
  Plan plan;
  double transfer = 0;                ///< of the whole model, in the plan's form
  bool bounded = false;               ///< the largest allowed τ is too small
  double bits_per_second_needed = 0;  ///< for the largest allowed τ to hide the transfer; 0 if it does
  double cost_share = 0;              ///< of the time that exchanges take from training with this plan
};
Recommendation recommend(const Situation& situation, const Recipe& recipe);

/// In a sentence or two.
std::string in_words(const Recommendation& recommendation, const Situation& situation, const Recipe& recipe);

struct Expectation {
  Strategy strategy = Strategy::kNone;
  double units_per_second = 0;  ///< over all workers
  double of_none = 0;
};

/// For every strategy, with the plan's τ where it has one, and each with the wire that it would have: the one that was
/// asked for, and by itself, or where that is refused, its own (docs/wire.md). Where that is chosen with τ, the plan's.
std::vector<Expectation> expect(const Situation& situation, const Plan& plan, Wire asked);

/// What a worker holds, in bytes.
struct MemoryNeed {
  /// Parameters, gradients, Adam's two moments, consensus, momentum, what rounding left behind, and what is in flight.
  double state = 0;
  double rest = 0;  ///< activations, the data, LibTorch itself
  double total() const { return state + rest; }
};

/// From the peak of a process that had the whole model in flight at once, in float32, for a run with such a plan.
MemoryNeed memory_need(std::int64_t parameters, const Plan& plan, int workers, double peak_bytes);

/// The least that a worker with such a model holds, before anything was measured.
double least_memory(std::int64_t parameters);

}  // namespace co2::doctor
