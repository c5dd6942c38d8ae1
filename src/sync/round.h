#pragma once

#include <co2/options.h>

#include <cstdint>

namespace co2 {

/// One round: the steps begin + 1 .. begin + local_steps, in which every fragment is launched once. A pure function of
/// the step number and of numbers that all workers share, so that all of them do the same at the same step.
///
/// Fragment f is launched after floor((f+1) τ/P) of the round's steps: launches are spread evenly, and the last one, or
/// a single one, is at the end of the round.
struct Round {
  std::int64_t number = 0;
  std::int64_t begin = 0;  ///< steps taken before it
  int local_steps = 1;     ///< τ
  int fragments = 1;       ///< P
  Wire wire = Wire::kPlain;

  std::int64_t end() const { return begin + local_steps; }
  std::int64_t launch_step(int fragment) const { return begin + std::int64_t{fragment + 1} * local_steps / fragments; }
  /// When the fragment after this one is launched, which may be in the next round: an exchange that is applied then is
  /// under way while no other one is.
  std::int64_t following_launch(int fragment, const Round& next) const {
    return fragment + 1 < fragments ? launch_step(fragment + 1) : next.launch_step(0);
  }
};

}  // namespace co2
