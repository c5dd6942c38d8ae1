#pragma once

#include <ATen/core/Tensor.h>
#include <co2/parameters.h>

#include <vector>

#include "flat/flat_parameters.h"
#include "flat/shard.h"

namespace co2 {

/// What the inner optimizer updates when this worker trains its shard instead of the whole model: stretches of the live
/// parameters, as few as there can be. One ends where the group changes or the kind of parameter, or where the shard
/// has a gap. Works unchanged for optimizers that treat every element by itself.
class TrainedShard {
 public:
  /// `live`: the parameters of `shard`, and maybe others (Shard::view); `gradients`: of the shard.
  TrainedShard(const std::vector<Parameter>& parameters, const FlatParameters& flat, const Shard& shard,
               const at::Tensor& live, at::Tensor gradients);

  const std::vector<TrainedTensor>& tensors() const { return tensors_; }

  /// Puts the gradients where the optimizer reads them, also after a zero_grad() that has dropped them.
  void give_gradients();
  void drop_gradients();

 private:
  at::Tensor gradients_;
  std::vector<TrainedTensor> tensors_;
  std::vector<Range> local_;  ///< where each is in the shard
};

}  // namespace co2
