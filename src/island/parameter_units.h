#pragma once

#include <co2/parameters.h>
#include <co2/trace.h>

#include <functional>
#include <memory>
#include <vector>

#include "comm/first_failure.h"
#include "flat/flat_parameters.h"
#include "flat/tensor_memory.h"
#include "island/forward_parameters.h"
#include "island/island.h"
#include "island/tour.h"

namespace co2 {

/// ZeRO 3: a worker keeps its shard of the parameters, and units of them come and go. A unit is gathered before its
/// forward and before its backward, while the one before it computes, and freed after. What belongs to no UnitModule
/// stays here all the time.
///
/// All workers gather all units in the order of a Tour, also those that they do not use themselves: a worker that skips
/// a unit gathers it together with the next one that it does use, or when the leg of the tour is over. So units may be
/// left out by some workers only. What is not known to be used any more is freed when a leg is over at the latest. The
/// order is that of registration at first, and rank 0's order of use after the first step. Gathers have a group of
/// their own: no order is needed between them and the gradients, and a worker waits for a unit only after it has let
/// go of the gradients of all that come before it on the way back (on_passed()), which others may wait for.
///
/// Parameters remain views of their unit's storage, which is emptied and filled again underneath them: so what autograd
/// has saved of them in forward is valid in backward.
///
/// Thread safety: used by the training thread, and by the thread of backward, which must not overlap.
class ParameterUnits final : public ForwardParameters {
 public:
  /// `live`: this worker's shard. Units are of dtype `compute`; `modules[i]` is the module of the i-th one from the end
  /// on.
  ParameterUnits(const Island& island, FlatParameters& flat, const at::Tensor& live, at::ScalarType compute,
                 const std::vector<ParameterUnit>& modules, FirstFailure& failure, Trace& trace);
  ~ParameterUnits() override;
  ParameterUnits(const ParameterUnits&) = delete;
  ParameterUnits& operator=(const ParameterUnits&) = delete;

  const at::Tensor& live() const override { return live_; }
  /// Frees all units, and gathers again those that stay.
  void changed(const std::vector<Range>& parts, std::int64_t round) override;
  void finish(const std::vector<Range>& parts, std::int64_t round, bool whole) override;
  void with_values(const at::Tensor& shard, std::int64_t round, const std::function<void()>& body) override;
  std::int64_t most_bytes() const override { return most_bytes_; }

  void got_gradient(std::size_t unit) override;
  void on_passed(std::function<void(std::size_t, int)> hook) override { on_passed_ = std::move(hook); }
  void passes_over(int passes) override;

 private:
  class Keeper;
  struct Unit {
    Range part;          ///< of the shard
    at::Tensor storage;  ///< one-dimensional; its memory comes and goes
    bool stays = true;
    bool here = false;
    std::size_t parameters = 0;      ///< that get gradients
    std::size_t awaited = 0;         ///< gradients that backward has yet to produce in this pass
    WorkPtr work;                    ///< it is on its way
    std::vector<std::int64_t> uses;  ///< in forward passes whose backward has not come to it, by number
  };

  void allocate(at::ScalarType dtype);
  void gather_from(const at::Tensor& shard, std::int64_t round, at::ScalarType dtype, bool whole);
  at::ScalarType dtype() const { return units_.front().storage.scalar_type(); }  ///< that forward sees now
  void gather(std::size_t unit);
  void bring(std::size_t unit);
  void free(std::size_t unit);
  void begin_forward();
  void begin_backward(std::int64_t use);
  void complete_leg(std::int64_t use);
  void gather_next();
  void visit(std::size_t unit);
  void let_go_before(std::size_t unit, std::int64_t use);
  bool may_get_gradients(std::size_t unit, std::int64_t use) const;
  void join_pass();
  void agree_on_order();
  void before_forward(std::size_t unit);
  at::Tensor after_forward(std::size_t unit, at::Tensor output);
  void before_backward(std::size_t unit, std::int64_t use);

  const Island& island_;
  FlatParameters& flat_;
  const std::shared_ptr<Communicator> group_;
  const at::ScalarType compute_;
  FirstFailure& failure_;
  Trace& trace_;
  at::Tensor live_;
  at::Tensor source_;    ///< the shard that is gathered
  TensorMemory memory_;  ///< of units
  std::vector<Unit> units_;
  std::vector<ParameterUnit> modules_;
  Tour tour_;
  bool training_ = false;  ///< in this forward leg gradients are wanted: backward will follow
  bool order_agreed_ = false;
  std::vector<std::size_t> used_first_;  ///< units in the order of their first use in training, until it is agreed
  std::int64_t uses_ = 0;
  int passes_ = 0;            ///< backward passes with gradients of units, since the last step
  bool leg_counted_ = false;  ///< this leg is one of them
  std::function<void(std::size_t, int)> on_passed_;
  bool whole_ = false;     ///< everything is here, and stays
  bool finished_ = false;  ///< finish() was the last to change what forward sees
  std::int64_t round_ = 0;
  std::int64_t most_bytes_ = 0;
};

}  // namespace co2
