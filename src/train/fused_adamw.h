#pragma once

#include <torch/optim/adamw.h>

namespace co2::train {

/// torch::optim::AdamW with the same options, state and results up to rounding, whose step is LibTorch's fused kernel:
/// one pass over each tensor instead of a chain of operators, several times faster for many small tensors.
class FusedAdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace co2::train
