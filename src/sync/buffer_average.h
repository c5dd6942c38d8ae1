#pragma once

#include <co2/communicator.h>
#include <co2/parameters.h>
#include <co2/state.h>
#include <co2/trace.h>

#include <memory>
#include <string>
#include <vector>

#include "sync/walk.h"

namespace co2 {

/// Averages a model's floating-point buffers (batch-norm statistics) over the workers, in the background.
///
/// A snapshot is launched at the end of a round; when the average is there, what was sent is replaced by it:
/// buffer += average - sent. What the buffer learned since the launch stays, as with Restart::kKeep. Integer buffers
/// (batch counters) are equal on all workers by themselves and are left alone.
class BufferAverage {
 public:
  BufferAverage(std::shared_ptr<Communicator> communicator, const std::vector<NamedTensor>& buffers, Trace& trace);

  void launch(std::int64_t round);
  void apply();
  /// Throws CommError if what is under way has failed already. Never blocks.
  void check();
  void abandon() noexcept;
  /// Waits for what is in flight, and shows it to whoever waits for it.
  void settle();
  /// Shows what is in flight; the buffers themselves are the model's.
  void visit(Walk& walk, const std::string& name);

 private:
  std::shared_ptr<Communicator> communicator_;
  std::vector<at::Tensor> buffers_;
  Trace& trace_;
  at::Tensor sent_;  // float64: statistics of any dtype pass through without loss
  at::Tensor payload_;
  bool in_flight_ = false;
  std::vector<WorkPtr> works_;  // none: what is in flight is here
  std::int64_t bytes_ = 0;
  std::int64_t round_ = 0;
  Walk::Later later_;
};

}  // namespace co2
