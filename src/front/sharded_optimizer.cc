#include "front/sharded_optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <utility>

#include "flat/shaped_like.h"
#include "front/optimizer_state.h"

namespace co2 {

namespace {

using StatePtr = std::unique_ptr<torch::optim::OptimizerParamState>;

/// Whose state a tensor of the shard begins with: all parameters that it has elements of have one of that kind. Padding
/// that is alone in a tensor takes any, because Adagrad insists on some.
const torch::optim::OptimizerParamState* pattern_for(const std::vector<Parameter>& parameters,
                                                     const std::vector<StatePtr>& states,
                                                     const TrainedTensor& trained) {
  if (!trained.pieces.empty()) return states[trained.pieces.front().parameter].get();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].group == trained.group && states[i]) return states[i].get();
  }
  return nullptr;
}

/// The state of a tensor of the shard.
StatePtr cut_state(const std::vector<Parameter>& parameters, const std::vector<StatePtr>& states,
                   const TrainedTensor& trained) {
  const torch::optim::OptimizerParamState* pattern = pattern_for(parameters, states, trained);
  if (pattern == nullptr) return nullptr;
  StatePtr cut = pattern->clone();
  const StateFields into = fields_of(*cut);
  for (std::size_t t = 0; t < into.tensors.size(); ++t) {
    at::Tensor& tensor = *into.tensors[t].tensor;
    if (!tensor.defined()) continue;
    const at::Tensor values = at::zeros({trained.tensor.numel()}, tensor.options());
    for (const TrainedTensor::Piece& piece : trained.pieces) {
      const at::Tensor& parameter = parameters[piece.parameter].tensor;
      const at::Tensor whole = at::empty({parameter.numel()}, values.options());
      shaped_like(whole, parameter).copy_(*fields_of(*states[piece.parameter]).tensors[t].tensor);
      values.narrow(0, piece.at, piece.size).copy_(whole.narrow(0, piece.begin, piece.size));
    }
    tensor = values;
  }
  return cut;
}

}  // namespace

void train_shard(torch::optim::Optimizer& optimizer, const std::vector<Parameter>& parameters,
                 const std::vector<TrainedTensor>& shard) {
  const at::NoGradGuard no_grad;
  std::vector<StatePtr> states(parameters.size());  // null if it never had a gradient
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto found = optimizer.state().find(parameters[i].tensor.unsafeGetTensorImpl());
    if (found != optimizer.state().end()) states[i] = std::move(found->second);
  }
  optimizer.state().clear();
  for (auto& group : optimizer.param_groups()) group.params().clear();
  for (const TrainedTensor& trained : shard) {
    optimizer.param_groups()[trained.group].params().push_back(trained.tensor);
    if (auto state = cut_state(parameters, states, trained)) {
      optimizer.state()[trained.tensor.unsafeGetTensorImpl()] = std::move(state);
    }
  }
}

}  // namespace co2
