#pragma once

#include <co2/parameters.h>
#include <co2/trace.h>

#include <memory>
#include <vector>

#include "flat/flat_parameters.h"
#include "island/island.h"

namespace co2 {

/// Whole parameters on every worker of an island, of which each answers for its shard: shows the others what has
/// changed there. UnitModules arrive while training goes on, and are waited for where forward uses them (as_unit());
/// the others, and those whose forward has never told, arrive before show() returns.
///
/// Thread safety: used by the training thread.
class ShownUnits {
 public:
  /// `modules[i]` is the module of the i-th unit from the end on.
  ShownUnits(const Island& island, const FlatParameters& flat, const std::vector<ParameterUnit>& modules, Trace& trace);
  ~ShownUnits();
  ShownUnits(const ShownUnits&) = delete;
  ShownUnits& operator=(const ShownUnits&) = delete;

  /// Starts to give everybody the owners' values of all units that overlap with `changed`, parts of a shard.
  void show(const std::vector<Range>& changed, std::int64_t round);
  /// Does the same for all units of another buffer with the layout of the flat parameters, and waits for it.
  void gather(const at::Tensor& buffer) const;
  /// Waits for all that show() has started: the shard may change after that.
  void wait();

 private:
  class Keeper;
  void wait_for(std::size_t unit);

  const Island& island_;
  const FlatParameters& flat_;
  Trace& trace_;
  std::vector<ParameterUnit> modules_;
  std::vector<WorkPtr> works_;               ///< per unit; null if it is here
  std::vector<bool> waited_for_by_forward_;  ///< per unit
  std::int64_t round_ = 0;
};

}  // namespace co2
