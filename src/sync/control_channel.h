#pragma once

#include <co2/communicator.h>
#include <co2/state.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace co2 {

/// Small numbers that all workers must agree on (loss for display, a wish to stop), summed in the background over a
/// group of their own, so that they neither block the training thread nor queue behind a transfer.
///
/// Every `period` steps a sum is launched; it is read `period` steps later, at the same step on all workers.
class ControlChannel {
 public:
  ControlChannel(std::shared_ptr<Communicator> communicator, int period, int width);
  ~ControlChannel();

  /// Called by all workers once per step with `width` numbers. Returns the sums over workers and over the steps of a
  /// period when they are due; blocks only if they are still on the wire a whole period after their launch.
  std::optional<std::vector<double>> step(const std::vector<double>& mine);

  /// Shows what this worker has collected, and what it has given to sums that are in flight: whoever reads it gives it
  /// once more, so that nobody waits when it is written. Reading is collective. The last `wishes` numbers are those of
  /// a life that is over: they are read as 0.
  void visit(StateVisitor& visitor, const std::string& name, int wishes);

  /// The sums still in flight, if any.
  std::optional<std::vector<double>> drain();

 private:
  void launch();

  std::shared_ptr<Communicator> communicator_;
  const int period_;
  std::int64_t steps_ = 0;
  std::vector<double> collected_;
  std::vector<double> given_;  // to what is in flight
  at::Tensor payload_;
  WorkPtr work_;
};

}  // namespace co2
