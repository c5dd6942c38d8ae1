#pragma once

#include <ATen/core/Tensor.h>
#include <co2/communicator.h>
#include <co2/trace.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "island/gradients.h"

namespace co2 {

/// A number that is the same on all workers that share gradients, but for rounding.
struct Witness {
  double value = 0;
  double tolerance = 0;  ///< relative
  /// Throws the error for a value that is between `least` and `most` on the workers.
  std::function<void(double least, double most)> differs;
};
using Witnesses = std::function<std::vector<Witness>()>;

/// What the workers that share gradients want to do with them, and whether they are still the same: a few numbers that
/// travel beside the gradients, so that one worker's wish to skip, or a model that drifts away from the others',
/// reaches them without a round trip of its own. Over a group for small numbers: in host memory, wherever gradients
/// are.
///
/// Thread safety: used by the training thread.
class Vote {
 public:
  /// `group`: null if this worker shares with nobody. `witnesses`: as many on all workers, at every vote.
  Vote(std::shared_ptr<Communicator> group, Witnesses witnesses, Trace& trace)
      : group_(std::move(group)), witnesses_(std::move(witnesses)), trace_(trace) {}
  ~Vote();
  Vote(const Vote&) = delete;
  Vote& operator=(const Vote&) = delete;

  /// Collective. `used`: which parameters this worker has gradients of; as many on all workers.
  void cast(Gradients::Use use, const std::vector<bool>& used = {});
  /// Waits for the others; true if all want to step. Throws OptionError if only some want to discard, and what a
  /// witness throws that differs.
  bool all_step(std::int64_t round);
  /// After it: whether any worker has a gradient of the i-th parameter.
  bool any_used(std::size_t i) const;

 private:
  std::shared_ptr<Communicator> group_;
  const Witnesses witnesses_;
  Trace& trace_;
  std::vector<Witness> cast_;
  at::Tensor largest_;  ///< over the workers
  WorkPtr work_;
};

}  // namespace co2
