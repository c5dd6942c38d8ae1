#pragma once

#include <string>

namespace co2::study {

/// When a strategy's transfers stand in the way of its computation.
enum class Pattern {
  kNothing,     ///< nothing is sent
  kBackward,    ///< gradients in every step, while backward runs (ddp)
  kBlocking,    ///< every τ steps, and everybody waits
  kOverlapped,  ///< in the background, while the next steps run
};

Pattern pattern_of(const std::string& strategy, bool blocking);

/// What share of a step is backward, behind which ddp hides its transfers: backward computes two products for each one
/// of forward.
inline constexpr double kBackwardShare = 2.0 / 3;

/// How long a step takes, on average, where each worker has a link of its own. With c seconds of computation in a step,
/// and T seconds for what a worker sends in one, on average over the steps of a round, at that rate:
///
///   nothing      c
///   blocking     c + T
///   overlapped   max(c, T)
///   backward     c/3 + max(2c/3, T)
///
/// Latency is left out, and the single average at the end of a run.
double step_seconds(Pattern pattern, double compute_seconds, double bytes_per_step, double bits_per_second);

}  // namespace co2::study
