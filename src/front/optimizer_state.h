#pragma once

#include <ATen/core/Tensor.h>
#include <co2/parameters.h>
#include <co2/state.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace co2 {

/// The fields of a parameter's state, of torch::optim's optimizers that treat every element by itself.
struct StateFields {
  struct Field {
    const char* name;
    at::Tensor* tensor;  ///< as large as the parameter, or undefined
  };
  std::int64_t step = 0;
  std::function<void(std::int64_t)> set_step = {};
  std::vector<Field> tensors = {};
};

/// No tensors if the state is of another optimizer.
StateFields fields_of(torch::optim::OptimizerParamState& state);

/// What must be the same for its state to be of use: its class, and the switches that decide what it remembers.
std::string kind_of(const torch::optim::Optimizer& optimizer);

/// Whether it divides by the root of a second moment: Adam, AdamW and RMSprop do, or what is derived from them.
bool has_second_moments(const torch::optim::Optimizer& optimizer);
/// That of a parameter, as it is in the optimizer; undefined if there is none yet.
at::Tensor second_moment_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
/// What is left of it after a step: Adam's β₂, RMSprop's alpha. 1 if the group has options of another optimizer.
double second_moment_decay(const torch::optim::OptimizerParamGroup& group);

/// Bytes of an optimizer's state, as far as fields_of() knows it.
std::int64_t state_bytes(const torch::optim::Optimizer& optimizer);

/// Throws OptionError, which says why, unless the optimizer is known to treat every element by itself and so is what it
/// remembers of those that it has trained so far: it can then train any part of the elements.
void check_elementwise(const torch::optim::Optimizer& optimizer);

/// Shows the state of all tensors that the optimizer updates, by the names of the parameters that they have elements
/// of. Throws OptionError for an optimizer whose state is not known.
void visit_inner_state(StateVisitor& visitor, torch::optim::Optimizer& optimizer,
                       const std::vector<Parameter>& parameters, const std::vector<TrainedTensor>& trained);

}  // namespace co2
