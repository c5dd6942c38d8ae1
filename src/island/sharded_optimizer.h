#pragma once

#include <ATen/core/Tensor.h>

#include "flat/shard.h"

namespace torch::optim {
class Optimizer;
}

namespace co2 {

/// Makes an optimizer train this worker's shard instead of the whole model: its parameter groups then hold stretches of
/// `live` (Shard::view), so that its state is the shard's only. Works unchanged for optimizers that treat every element
/// by itself.
///
/// Throws OptionError if the optimizer is not known to do that, or has begun to train.
void give_shard(torch::optim::Optimizer& optimizer, const Shard& shard, const at::Tensor& live,
                const at::Tensor& gradients);

/// Puts the gradients back in place after a zero_grad() has dropped them.
void restore_gradients(torch::optim::Optimizer& optimizer, const Shard& shard, const at::Tensor& gradients);

/// Bytes of an optimizer's state, as far as it is one of torch::optim's elementwise ones.
std::int64_t state_bytes(const torch::optim::Optimizer& optimizer);

}  // namespace co2
