#pragma once

#include <co2/trace.h>
#include <co2/unit.h>

#include <memory>
#include <optional>
#include <vector>

#include "flat/flat_parameters.h"
#include "flat/shard.h"
#include "island/forward_parameters.h"
#include "island/island.h"
#include "trace/bytes.h"

namespace co2 {

/// ZeRO 3: a worker keeps its shard of the parameters, and units of them come and go. A unit is gathered before its
/// forward and before its backward, while the one before it computes, and freed after. What belongs to no UnitModule
/// stays here all the time.
///
/// Parameters remain views of their unit's storage, which is emptied and filled again underneath them: so what autograd
/// has saved of them in forward is valid in backward.
///
/// Thread safety: used by the training thread, and by the thread of backward, which must not overlap.
class ParameterUnits final : public ForwardParameters {
 public:
  /// Takes the parameters over from `flat`, whose own buffer is gone after that: live() is this worker's `shard` of it,
  /// and units are of dtype `compute`. `modules[i]` is the module of the i-th unit from the end on.
  ParameterUnits(const Island& island, FlatParameters& flat, const Shard& shard, at::ScalarType compute,
                 const std::vector<UnitModule*>& modules, Trace& trace);
  ~ParameterUnits() override;
  ParameterUnits(const ParameterUnits&) = delete;
  ParameterUnits& operator=(const ParameterUnits&) = delete;

  const at::Tensor& live() const override { return live_; }
  /// Frees all units, and gathers again those that stay.
  void changed(const std::vector<Range>& parts, std::int64_t round) override;
  void finish(const std::vector<Range>& parts, std::int64_t round) override;
  void with_values(const at::Tensor& shard, std::int64_t round, const std::function<void()>& body) override;
  std::int64_t most_bytes() const override { return bytes_.most(); }

  /// Backward has produced a gradient of the unit: it is not needed any more once it has produced all.
  void got_gradient(std::size_t unit);

 private:
  class Keeper;
  struct Unit {
    Range part;          ///< of the shard
    at::Tensor storage;  ///< one-dimensional; its memory comes and goes
    bool stays = true;
    bool here = false;
    std::size_t parameters = 0;         ///< that get gradients
    std::size_t awaited = 0;            ///< gradients that backward has yet to produce in this pass
    WorkPtr work;                       ///< it is on its way
    std::optional<std::size_t> before;  ///< the unit that was used before it in the last forward
    std::optional<std::size_t> after;
  };

  void allocate(at::ScalarType dtype);
  void gather_from(const at::Tensor& shard, std::int64_t round, bool whole);
  void fetch(std::size_t unit);
  void bring(std::size_t unit);
  void free(std::size_t unit);
  void before_forward(std::size_t unit);
  at::Tensor after_forward(std::size_t unit, at::Tensor output);

  const Island& island_;
  FlatParameters& flat_;
  const at::ScalarType compute_;
  Trace& trace_;
  at::Tensor live_;
  at::Tensor source_;  ///< the shard that is gathered
  std::vector<Unit> units_;
  std::vector<UnitModule*> modules_;
  bool whole_ = false;               ///< everything is here, and stays
  std::optional<std::size_t> last_;  ///< the unit whose forward ran last in this pass
  std::int64_t round_ = 0;
  PeakBytes bytes_;
};

}  // namespace co2
