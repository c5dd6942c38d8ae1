#pragma once

#include <co2/state.h>
#include <co2/trace.h>

#include <cstdint>
#include <deque>
#include <vector>

namespace co2::train {

/// What a training loop remembers of one worker's steps: with the Synchronizer's, the task's and the control channel's
/// state, all that a run needs to go on.
struct LoopState {
  std::int64_t steps = 0;     ///< taken
  int period = 0;             ///< of the control channel; 0 before the first step
  double rate = 0;            ///< of the newest step
  double units = 0;           ///< that all workers have trained on, however many there were
  double first_loss = 0;      ///< this worker's
  std::deque<double> losses;  ///< this worker's newest ones
  double validation_loss_before = 0;
  std::vector<double> metrics_before;  ///< as many as the task has
  std::int64_t evaluated_at = 0;       ///< the step of the last evaluation while training
  double newest_loss = 0;              ///< mean over workers and a control period
  std::int64_t newest_loss_step = 0;
  double wall_seconds = 0;         ///< of former lives of the run; a clock goes on from there
  double training_seconds = 0;     ///< the same for the training clock
  double last_control = 0;         ///< what that showed when the newest sums arrived
  Overlap communication;           ///< of former lives
  std::int64_t left_out = 0;       ///< exchanges that were told of
  std::int64_t metrics_lines = 0;  ///< rank 0: in metrics.jsonl

  void visit(StateVisitor& visitor);
};

}  // namespace co2::train
