#pragma once

#include <co2/trace.h>

#include <functional>
#include <memory>
#include <vector>

#include "flat/flat_parameters.h"
#include "shard/island.h"

namespace co2 {

/// Averages gradients over an island while backward is still running, and leaves every worker the average of its own
/// shard only: ZeRO 1 and 2. They are added up in the shard's own dtype, whatever backward computes in.
///
/// A hook on each parameter moves its gradient to its place in its unit; a full unit is reduce-scattered in the
/// background. Units are started in the same order on all workers, from the last to the first, which is about the order
/// in which backward fills them. With `free_units` (ZeRO 2) a unit has memory only while it fills and travels, and
/// every backward pass of an accumulation travels, so that full gradients never add up; without (ZeRO 1) buffers stay,
/// and only the last pass travels.
///
/// A parameter that got no gradient counts as having one of zeros: its elements are updated with those of its unit.
///
/// Thread safety: the hooks run on the thread of backward, which must not overlap with finish().
class ShardedGradients {
 public:
  /// One unit on the wire, one behind it: enough to keep the wire busy, and the most that ZeRO 2 holds besides the one
  /// that is being filled.
  static constexpr std::size_t kUnderWay = 2;

  /// `like`: the dtype and device of the shard.
  ShardedGradients(const Island& island, const FlatParameters& flat, const at::TensorOptions& like,
                   int accumulation_steps, bool free_units, Trace& trace);
  ~ShardedGradients();  ///< removes the hooks, waits for what is under way
  ShardedGradients(const ShardedGradients&) = delete;
  ShardedGradients& operator=(const ShardedGradients&) = delete;

  /// Starts what backward has not, waits, and leaves the average of the shard in values(). The parameters have no
  /// gradients any more.
  void finish(std::int64_t round);

  /// Called from backward when it has produced all gradients of a unit.
  void on_unit_full(std::function<void(std::size_t)> hook) { on_unit_full_ = std::move(hook); }

  const at::Tensor& values() const { return shard_; }
  /// The most that gradients have taken at once, and the most that reduce-scatters needed besides.
  std::int64_t most_bytes() const { return most_bytes_ + static_cast<std::int64_t>(shard_.nbytes()); }
  std::int64_t most_scratch_bytes() const { return most_scratch_bytes_; }

 private:
  class Hook;
  struct Slot {
    at::Tensor parameter;
    Range in_unit;
    std::int64_t gap_end = 0;  ///< behind it there is padding up to here
    std::size_t unit = 0;
    int passes = 0;      ///< backward passes since the last finish()
    bool ready = false;  ///< its gradient is in its unit, and waits there for the others
  };
  struct Unit {
    Range flat;
    Range shard;  ///< where its part is in the shard
    std::size_t slots = 0;
    std::size_t ready = 0;
    at::Tensor memory;  ///< of the buffer
    at::Tensor buffer;
    // Under way:
    at::Tensor sending_memory;
    at::Tensor sending;
    at::Tensor part;
    WorkPtr work;  ///< null if the island is this worker alone
  };

  int cycles() const { return free_units_ ? accumulation_steps_ : 1; }  ///< how often each unit travels per step
  Unit& unit_of(std::size_t journey) { return units_[units_.size() - 1 - journey % units_.size()]; }
  void on_gradient(Slot& slot);
  void fill(Slot& slot);
  void hold(std::int64_t bytes);
  at::Tensor take_memory(std::int64_t elements);
  std::int64_t scratch_bytes(const Unit& unit) const;
  void start_full_units();
  void start(Unit& unit);
  void collect(Unit& unit);

  const Island& island_;
  const FlatParameters& flat_;
  const int accumulation_steps_;
  const bool free_units_;
  Trace& trace_;
  at::Tensor shard_;
  std::vector<Slot> slots_;
  std::vector<Unit> units_;
  std::vector<at::Tensor> idle_;  ///< memory for units; with `free_units` they take turns
  std::function<void(std::size_t)> on_unit_full_;
  std::size_t journeys_ = 0;  ///< that were started since the last finish(): units from last to first, cycle by cycle
  std::int64_t round_ = 0;
  std::int64_t bytes_ = 0;  ///< of units, and of gradients that still add up in the parameters
  std::int64_t most_bytes_ = 0;
  std::int64_t scratch_bytes_ = 0;
  std::int64_t most_scratch_bytes_ = 0;
};

}  // namespace co2
