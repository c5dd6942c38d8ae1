#pragma once

#include <co2/trace.h>

#include <functional>
#include <memory>
#include <vector>

#include "flat/flat_parameters.h"
#include "flat/shard.h"
#include "island/gradient_hooks.h"
#include "island/gradients.h"
#include "island/island.h"
#include "island/trained_shard.h"
#include "island/vote.h"
#include "trace/bytes.h"

namespace co2 {

/// Averages gradients over an island while backward is still running, and leaves every worker the average of its own
/// shard only, which is all that the optimizer trains from then on: ZeRO 1 to 3. They are added up in the shard's own
/// dtype, whatever backward computes in.
///
/// A hook on each parameter moves its gradient to its place in its unit; a full unit is reduce-scattered in the
/// background. Units are started in the same order on all workers, from the last to the first, which is about the order
/// in which backward fills them. With `free_units` (ZeRO 2) a unit has memory only while it fills and travels, and
/// every backward pass of an accumulation travels, so that full gradients never add up; without (ZeRO 1) buffers stay,
/// and only the last pass travels. (Until then gradients add up where backward puts them, unless those have fewer
/// digits than the shard.)
///
/// A parameter that got no gradient counts as having one of zeros: its elements are updated with those of its unit. Its
/// unit leaves when step() begins, or earlier, when close() says that none will come any more.
///
/// Thread safety: the hooks run on the thread of backward, which must not overlap with finish().
class ShardedGradients final : public Gradients {
 public:
  /// One unit on the wire, one behind it: enough to keep the wire busy, and the most that ZeRO 2 holds besides the one
  /// that is being filled.
  static constexpr std::size_t kUnderWay = 2;

  /// `live`: the parameters of `shard`, and maybe others (Shard::view), which the optimizer will train.
  ShardedGradients(const Island& island, const std::vector<Parameter>& parameters, const FlatParameters& flat,
                   const Shard& shard, const at::Tensor& live, int accumulation_steps, bool free_units,
                   Witnesses witnesses, FirstFailure& failure, Trace& trace);
  ~ShardedGradients() override;  ///< waits for what is under way
  ShardedGradients(const ShardedGradients&) = delete;
  ShardedGradients& operator=(const ShardedGradients&) = delete;

  /// Starts what backward has not, waits, and gives the average of the shard to the optimizer. The parameters have no
  /// gradients any more.
  bool finish(std::int64_t round, Use use) override;
  bool under_way() const override { return hooks_->any_pass(); }
  bool averaged() const override { return island_.size() > 1; }
  bool by_shard() const override { return true; }
  const std::vector<TrainedTensor>& trained() const override { return trained_.tensors(); }

  /// For parameters that come and go: `got_gradient` hears of each gradient of a unit that backward has produced, and
  /// `passes_over` that none will follow in this step.
  void tell(std::function<void(std::size_t)> got_gradient, std::function<void()> passes_over) {
    got_gradient_ = std::move(got_gradient);
    passes_over_ = std::move(passes_over);
  }
  /// The first `passes` backward passes of this step produce no more gradients of the unit. (Only with `free_units`.)
  void close(std::size_t unit, int passes);

  std::int64_t most_bytes() const override { return bytes_.most(); }
  std::int64_t most_scratch_bytes() const override { return scratch_bytes_.most(); }

 private:
  struct Slot {
    at::Tensor parameter;
    Range in_unit;
    std::int64_t gap_end = 0;  ///< behind it there is padding up to here
    std::size_t unit = 0;
    std::int64_t held = 0;  ///< bytes of a gradient that still adds up outside of its unit
    bool filled = false;    ///< there is a gradient in its place
    bool ready = false;     ///< which waits there for the others, and then leaves
  };
  struct Unit {
    Range flat;
    Range mine;  ///< where its part is in the shard
    std::size_t slots = 0;
    std::size_t ready = 0;
    int journeys = 0;   ///< since the last finish()
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
  std::vector<at::Tensor> final_ones() const override { return {averages_}; }
  double sum_over_holders(double value) const override { return island_.sum(value); }
  void on_gradient(Slot& slot, int pass);
  void fill(Slot& slot);
  void fill_up(std::size_t unit);
  void set_ready(Slot& slot);
  at::Tensor take_memory(std::int64_t elements);
  std::int64_t scratch_bytes(const Unit& unit) const;
  void start_full_units();
  void start(Unit& unit);
  void collect(Unit& unit);
  bool complete(std::int64_t round, Use use);

  const Island& island_;
  const int accumulation_steps_;
  const bool free_units_;
  FirstFailure& failure_;
  Trace& trace_;
  Vote vote_;
  at::Tensor averages_;  ///< of the shard
  TrainedShard trained_;
  std::vector<Slot> slots_;
  std::vector<Unit> units_;
  std::vector<at::Tensor> idle_;  ///< memory for units; with `free_units` they take turns
  std::function<void(std::size_t)> got_gradient_;
  std::function<void()> passes_over_;
  std::size_t journeys_ = 0;  ///< that were started since the last finish(): units from last to first, cycle by cycle
  std::int64_t round_ = 0;
  PeakBytes bytes_;  ///< of averages, units, and gradients that still add up in the parameters
  PeakBytes scratch_bytes_;
  std::unique_ptr<GradientHooks> hooks_;
};

}  // namespace co2
