#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "flat/flat_parameters.h"
#include "flat/shard.h"

namespace torch::optim {
class Optimizer;
}

namespace co2 {

/// Makes an optimizer train this worker's shard instead of the whole model: its parameter groups then hold stretches of
/// the live parameters, and its state is the shard's only. Works unchanged for optimizers that treat every element by
/// itself. What such a one remembers of the whole model is cut like the parameters: where the number of its steps
/// changes (parameters that got their first gradient later than others), so does the stretch.
///
/// For good: the optimizer never gets the model's parameters back.
class ShardedOptimizer {
 public:
  /// `live`: the parameters of `shard`, and maybe others (Shard::view); `gradients`: of the shard. The optimizer must
  /// have passed check_elementwise().
  ShardedOptimizer(torch::optim::Optimizer& optimizer, const FlatParameters& flat, const Shard& shard,
                   const at::Tensor& live, at::Tensor gradients);

  /// Puts the gradients where the optimizer reads them, also after a zero_grad() that has dropped them.
  void give_gradients();
  void drop_gradients();

 private:
  struct Stretch {
    at::Tensor parameter;  ///< the optimizer's own
    Range local;           ///< in the shard
  };

  at::Tensor gradients_;
  std::vector<Stretch> stretches_;
};

}  // namespace co2
