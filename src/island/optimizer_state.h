#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <vector>

namespace co2 {

/// The fields of a parameter's state, of torch::optim's optimizers that treat every element by itself.
struct StateFields {
  std::int64_t step = 0;
  std::vector<at::Tensor*> tensors;  ///< as large as the parameter, or undefined
};

/// No tensors if the state is of another optimizer.
StateFields fields_of(torch::optim::OptimizerParamState& state);

/// Bytes of an optimizer's state, as far as fields_of() knows it.
std::int64_t state_bytes(const torch::optim::Optimizer& optimizer);

/// Throws OptionError, which says why, unless the optimizer is known to treat every element by itself and so is what it
/// remembers of those that it has trained so far: it can then train any part of the elements.
void check_elementwise(const torch::optim::Optimizer& optimizer);

}  // namespace co2
