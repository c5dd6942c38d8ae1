#pragma once

#include <co2/communicator.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace co2 {

/// Carries exchanges that take several collectives, one after the other, with work between them (add up, encode),
/// forward in the background: whoever starts one need not come back for it.
///
/// Stage s of an exchange runs when its collective before is over and stage s of all exchanges that were started before
/// it has run. So the collectives of one stage start in the order of start(), which is the same on all workers,
/// whatever arrives first where; each stage must have a group of its own.
///
/// Thread safety: start() is for one thread at a time; the Works may be used anywhere.
class Stages {
 public:
  /// Does what is to be done with what the stage before has brought, and starts the collective of this one. The first
  /// is called by start(), the others on a thread of this object.
  using Stage = std::function<WorkPtr()>;

  /// `count`: stages of every exchange, at least 1.
  explicit Stages(std::size_t count);
  /// Waits for all that is under way, as long as its groups do.
  ~Stages();
  Stages(const Stages&) = delete;
  Stages& operator=(const Stages&) = delete;

  /// `last` runs once the last collective is over, before the Work is. What a stage throws, or its collective, is the
  /// failure of the whole.
  WorkPtr start(std::vector<Stage> stages, std::function<void()> last = nullptr);

  /// Processor time that its thread has used so far.
  double cpu_seconds() const;

 private:
  class Exchange;
  struct Line;

  std::shared_ptr<Line> line_;
  mutable std::thread thread_;
};

}  // namespace co2
