#pragma once

#include <cstdint>
#include <optional>

namespace co2 {

/// When each fragment is launched and applied: a pure function of the step number, the same on all workers.
///
/// Fragment f is launched after step t whenever t ≡ floor((f+1) τ/P) (mod τ), so that launches are spread evenly over
/// the round and a single fragment is launched at its end. An exchange is applied `delay` steps after its launch; with
/// no explicit delay that is when the next fragment is launched, so that one is on the wire at any time.
class Schedule {
 public:
  Schedule(int local_steps, int fragments, std::optional<int> delay)
      : local_steps_(local_steps), fragments_(fragments), delay_(delay) {}

  bool launches(int fragment, std::int64_t step) const {
    return step >= offset(fragment) && (step - offset(fragment)) % local_steps_ == 0;
  }
  int delay(int fragment) const {
    if (delay_) return *delay_;
    return fragment + 1 < fragments_ ? offset(fragment + 1) - offset(fragment)
                                     : offset(0) + local_steps_ - offset(fragment);
  }
  /// The round that a step belongs to: steps 1..τ are round 0.
  std::int64_t round(std::int64_t step) const { return step > 0 ? (step - 1) / local_steps_ : 0; }

 private:
  int offset(int fragment) const { return static_cast<int>(std::int64_t{fragment + 1} * local_steps_ / fragments_); }

  int local_steps_;
  int fragments_;
  std::optional<int> delay_;
};

}  // namespace co2
