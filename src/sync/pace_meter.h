#pragma once

#include <ATen/core/Tensor.h>
#include <co2/communicator.h>
#include <co2/state.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/transfer.h"
#include "sync/pace_control.h"
#include "sync/walk.h"
#include "trace/interval_union.h"

namespace co2 {

/// Measures what PaceControl needs on this worker, and agrees with the others on it: over a group of its own, in the
/// background, so that nobody waits and nothing queues behind a transfer.
///
/// Thread safety: used by the training thread.
class PaceMeter {
 public:
  /// `model`: what is exchanged; `wires`: the forms that it may be sent in. Transfers are told as if all had been of
  /// the first. `background`: processor time of threads that carry it; empty if they do not run on the cores that
  /// compute, so that their time is not taken from the computation.
  PaceMeter(std::shared_ptr<Communicator> data, std::shared_ptr<Communicator> control, const at::Tensor& model,
            std::vector<WireChoice> wires, std::function<double()> background);
  ~PaceMeter();

  /// Times small all-reduces: a first idea of the network, before anything was exchanged. Blocking, collective.
  void probe();
  double latency() const { return latency_; }

  void add_step(double seconds) { steps_.push_back(seconds); }
  void add_exchange(std::int64_t elements, Wire wire, const TransferTime& on_the_wire);
  /// What an exchange has taken from the training thread: its processor time, as on a machine with more workers than
  /// cores a clock would count the others' too.
  void add_outer(double seconds) { outer_ += seconds; }

  /// Starts to agree on what was measured since the last call: the probe's idea of an exchange at the first call.
  void launch();
  /// What was agreed on, if something was launched before. Blocks only if it is still on the wire.
  std::optional<RoundTimes> agreed();

  /// Waits for what is under way, and shows it to whoever waits for it.
  void settle();
  /// Shows what was measured and agreed on so far. Clocks begin anew: time between two lives of a run is nobody's.
  void visit(Walk& walk, const std::string& name);

 private:
  double cycles() const;

  std::shared_ptr<Communicator> data_;
  std::shared_ptr<Communicator> control_;
  const std::int64_t elements_;
  const at::TensorOptions options_;
  const std::vector<WireChoice> wires_;
  const std::function<double()> background_;

  double latency_ = 0;
  std::optional<RoundTimes> probed_;
  std::vector<double> steps_;
  std::int64_t exchanged_ = 0;  // elements
  double exchanged_bytes_ = 0;  // on the wire
  std::int64_t exchanges_ = 0;
  IntervalUnion on_the_wire_;  // of exchanges only: the trace also has gradients of an island, and buffers
  Clock::time_point launched_;
  double transfer_before_ = 0;
  double outer_ = 0;
  double cycles_before_ = 0;
  double idle_ = 0;  // seconds of the network stack's threads per second without an exchange: they poll
  at::Tensor payload_;
  bool under_way_ = false;  // and not yet agreed on: payload_ is under way, or here if there is no work_
  WorkPtr work_;
  Walk::Later later_;
};

}  // namespace co2
