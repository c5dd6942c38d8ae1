#pragma once

#include <co2/trace.h>
#include <co2/unit.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "flat/flat_parameters.h"
#include "shard/island.h"

namespace co2 {

/// ZeRO 3: a worker keeps its shard of the parameters, and units of them come and go. A unit is gathered before its
/// forward and before its backward, while the one before it computes, and freed after. What belongs to no UnitModule
/// stays here all the time.
///
/// Parameters remain views of their unit's storage, which is emptied and filled again underneath them: so what autograd
/// has saved of them in forward is valid in backward.
///
/// Thread safety: used by the training thread, and by the thread of backward, which must not overlap.
class ParameterUnits {
 public:
  /// Takes the parameters over from `flat`, whose own buffer is gone after that. `live` is the shard of them, which the
  /// optimizer and the exchange between islands work on; units are of dtype `compute`. `modules[i]` is the module of
  /// the i-th unit from the end on.
  ParameterUnits(const Island& island, FlatParameters& flat, at::Tensor live, at::ScalarType compute,
                 const std::vector<UnitModule*>& modules, Trace& trace);
  ~ParameterUnits();
  ParameterUnits(const ParameterUnits&) = delete;
  ParameterUnits& operator=(const ParameterUnits&) = delete;

  /// The shard has changed: frees all units, and gathers again those that stay.
  void refresh(std::int64_t round) { refresh_from(live_, round); }
  /// The same with the values of another shard, until the next refresh.
  void refresh_from(const at::Tensor& shard, std::int64_t round);
  /// Brings all units here, in the shard's own dtype, until the next refresh.
  void gather_all();

  /// Backward has produced all gradients of the unit.
  void backward_done(std::size_t unit);

  /// The most that shard and units have taken at once in training: gather_all() apart.
  std::int64_t most_bytes() const { return most_bytes_; }

 private:
  class Keeper;
  struct Unit {
    Range part;          ///< of the shard
    at::Tensor storage;  ///< one-dimensional; its memory comes and goes
    bool stays = true;
    bool here = false;
    WorkPtr work;                       ///< it is on its way
    std::optional<std::size_t> before;  ///< the unit that was used before it in the last forward
    std::optional<std::size_t> after;
  };

  void allocate(at::ScalarType dtype);
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
  std::int64_t bytes_ = 0;
  std::int64_t most_bytes_ = 0;
};

}  // namespace co2
