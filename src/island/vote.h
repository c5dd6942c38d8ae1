#pragma once

#include <ATen/core/Tensor.h>
#include <co2/communicator.h>
#include <co2/trace.h>

#include <memory>

#include "island/gradients.h"

namespace co2 {

/// What the workers that share gradients want to do with them: a sum of two numbers that travels beside the gradients,
/// so that one worker's wish to skip reaches the others without a round trip of its own.
///
/// Thread safety: used by the training thread.
class Vote {
 public:
  /// `group`: null if this worker shares with nobody.
  Vote(std::shared_ptr<Communicator> group, Trace& trace) : group_(std::move(group)), trace_(trace) {}
  ~Vote();
  Vote(const Vote&) = delete;
  Vote& operator=(const Vote&) = delete;

  /// Collective.
  void cast(Gradients::Use use);
  /// Waits for the others; true if all want to step. Throws OptionError if only some want to discard.
  bool all_step(std::int64_t round);

 private:
  std::shared_ptr<Communicator> group_;
  Trace& trace_;
  at::Tensor sums_;  ///< who skip, who discard
  WorkPtr work_;
};

}  // namespace co2
