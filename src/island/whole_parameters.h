#pragma once

#include <co2/parameters.h>
#include <co2/trace.h>

#include <memory>
#include <vector>

#include "flat/flat_parameters.h"
#include "flat/shard.h"
#include "island/forward_parameters.h"
#include "island/island.h"
#include "island/shown_units.h"

namespace co2 {

/// The whole model on every worker. In an island whose workers answer for a shard each, they show each other what has
/// changed. Forward computes with the live parameters themselves, or, if `compute` is another dtype, with a copy, and
/// live() is the shard apart.
///
/// Thread safety: used by the training thread.
class WholeParameters final : public ForwardParameters {
 public:
  /// `modules[i]` is the module of the i-th unit of `flat` from the end on.
  WholeParameters(const Island& island, FlatParameters& flat, const Shard& shard, at::ScalarType compute,
                  const std::vector<ParameterUnit>& modules, Trace& trace);

  const at::Tensor& live() const override { return apart_.defined() ? apart_ : flat_.data(); }
  void settle() override;
  void changed(const std::vector<Range>& parts, std::int64_t round) override;
  void finish(const std::vector<Range>& parts, std::int64_t round, bool whole) override;
  void with_values(const at::Tensor& shard, std::int64_t round, const std::function<void()>& body) override;
  std::int64_t most_bytes() const override;

 private:
  void show(const std::vector<Range>& parts, std::int64_t round);

  FlatParameters& flat_;
  const Shard& shard_;
  const at::ScalarType compute_;
  at::Tensor apart_;                   // undefined if forward computes with the live parameters themselves
  std::unique_ptr<ShownUnits> shown_;  // null if this worker answers for everything
};

}  // namespace co2
