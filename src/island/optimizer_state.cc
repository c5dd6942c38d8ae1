#include "island/optimizer_state.h"

#include <co2/error.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <typeinfo>

#include "trace/bytes.h"

namespace co2 {

namespace {

template <typename... Known>
bool is_one_of(const torch::optim::Optimizer& optimizer) {
  return ((dynamic_cast<const Known*>(&optimizer) != nullptr) || ...);
}

/// Not derived from one of these: that might remember more.
template <typename... Known>
bool is_exactly_one_of(const torch::optim::OptimizerParamState& state) {
  return ((typeid(state) == typeid(Known)) || ...);
}

}  // namespace

StateFields fields_of(torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  if (auto* adamw = dynamic_cast<AdamWParamState*>(&state)) {
    return {adamw->step(), {&adamw->exp_avg(), &adamw->exp_avg_sq(), &adamw->max_exp_avg_sq()}};
  }
  if (auto* adam = dynamic_cast<AdamParamState*>(&state)) {
    return {adam->step(), {&adam->exp_avg(), &adam->exp_avg_sq(), &adam->max_exp_avg_sq()}};
  }
  if (auto* sgd = dynamic_cast<SGDParamState*>(&state)) return {0, {&sgd->momentum_buffer()}};
  if (auto* rmsprop = dynamic_cast<RMSpropParamState*>(&state)) {
    return {rmsprop->step(), {&rmsprop->square_avg(), &rmsprop->momentum_buffer(), &rmsprop->grad_avg()}};
  }
  if (auto* adagrad = dynamic_cast<AdagradParamState*>(&state)) return {adagrad->step(), {&adagrad->sum()}};
  return {};
}

std::int64_t state_bytes(const torch::optim::Optimizer& optimizer) {
  std::int64_t bytes = 0;
  for (const auto& [parameter, state] : optimizer.state()) {
    for (const at::Tensor* tensor : fields_of(*state).tensors) bytes += bytes_of(*tensor);
  }
  return bytes;
}

void check_elementwise(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (!is_one_of<SGD, Adam, AdamW, RMSprop, Adagrad>(optimizer)) {
    throw OptionError(
        "zero and compute = bfloat16 need an optimizer that updates every element by itself: SGD, Adam, AdamW, "
        "RMSprop, "
        "Adagrad, or one derived from them. This one is not known to: use zero = 0");
  }
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      OptimizerParamState& state = *found->second;
      bool fits =
          is_exactly_one_of<SGDParamState, AdamParamState, AdamWParamState, RMSpropParamState, AdagradParamState>(
              state);
      for (const at::Tensor* tensor : fields_of(state).tensors) {
        fits =
            fits && (!tensor->defined() || (tensor->sizes() == parameter.sizes() && tensor->layout() == at::kStrided));
      }
      if (fits) continue;
      throw OptionError(
          "the optimizer has state that zero and compute = bfloat16 don't know how to divide: make the Synchronizer "
          "before the first step");
    }
  }
}

}  // namespace co2
