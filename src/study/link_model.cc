#include "study/link_model.h"

#include <algorithm>

namespace co2::study {

Pattern pattern_of(const std::string& strategy, bool blocking) {
  if (strategy == "none") return Pattern::kNothing;
  if (strategy == "ddp") return Pattern::kBackward;
  return blocking ? Pattern::kBlocking : Pattern::kOverlapped;
}

double step_seconds(Pattern pattern, double compute_seconds, double bytes_per_step, double bits_per_second) {
  const double transfer = 8 * bytes_per_step / bits_per_second;
  switch (pattern) {
    case Pattern::kNothing: return compute_seconds;
    case Pattern::kBlocking: return compute_seconds + transfer;
    case Pattern::kOverlapped: return std::max(compute_seconds, transfer);
    case Pattern::kBackward:
      return (1 - kBackwardShare) * compute_seconds + std::max(kBackwardShare * compute_seconds, transfer);
  }
  return compute_seconds;
}

}  // namespace co2::study
