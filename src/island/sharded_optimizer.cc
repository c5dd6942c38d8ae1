#include "island/sharded_optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <co2/error.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace co2 {

namespace {

template <typename... Known>
bool is_one_of(const torch::optim::Optimizer& optimizer) {
  return ((dynamic_cast<const Known*>(&optimizer) != nullptr) || ...);
}

void check_elementwise(torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (!is_one_of<SGD, Adam, AdamW, RMSprop, Adagrad>(optimizer)) {
    throw OptionError(
        "zero needs an optimizer that updates every element by itself: SGD, Adam, AdamW, RMSprop, Adagrad, or one "
        "derived from them. This one is not known to: use zero = 0");
  }
  for (const auto& [parameter, state] : optimizer.state()) {
    // Adagrad is born with a state, which is as good as none before its first step.
    const auto* adagrad = dynamic_cast<const AdagradParamState*>(state.get());
    if (adagrad != nullptr && adagrad->step() == 0) continue;
    throw OptionError(
        "the optimizer has state of the whole model already, which can't be divided any more: make the Synchronizer "
        "before the first step");
  }
}

void give_birth_state(torch::optim::Optimizer& optimizer) {
  optimizer.state().clear();
  if (!is_one_of<torch::optim::Adagrad>(optimizer)) return;
  for (const auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<const torch::optim::AdagradOptions&>(group.options());
    for (const at::Tensor& parameter : group.params()) {
      auto state = std::make_unique<torch::optim::AdagradParamState>();
      state->step(0);
      state->sum(at::full_like(parameter.detach(), options.initial_accumulator_value()));
      optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
    }
  }
}

template <typename State>
const State* as(const torch::optim::OptimizerParamState& state) {
  return dynamic_cast<const State*>(&state);
}

}  // namespace

std::int64_t state_bytes(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  std::int64_t bytes = 0;
  const auto count = [&bytes](std::initializer_list<at::Tensor> tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined()) bytes += static_cast<std::int64_t>(tensor.nbytes());
    }
  };
  for (const auto& [parameter, state] : optimizer.state()) {
    if (const auto* adamw = as<AdamWParamState>(*state)) {
      count({adamw->exp_avg(), adamw->exp_avg_sq(), adamw->max_exp_avg_sq()});
    } else if (const auto* adam = as<AdamParamState>(*state)) {
      count({adam->exp_avg(), adam->exp_avg_sq(), adam->max_exp_avg_sq()});
    } else if (const auto* sgd = as<SGDParamState>(*state)) {
      count({sgd->momentum_buffer()});
    } else if (const auto* rmsprop = as<RMSpropParamState>(*state)) {
      count({rmsprop->square_avg(), rmsprop->momentum_buffer(), rmsprop->grad_avg()});
    } else if (const auto* adagrad = as<AdagradParamState>(*state)) {
      count({adagrad->sum()});
    }
  }
  return bytes;
}

void give_shard(torch::optim::Optimizer& optimizer, const Shard& shard, const at::Tensor& live,
                const at::Tensor& gradients) {
  check_elementwise(optimizer);
  for (auto& group : optimizer.param_groups()) group.params().clear();
  for (const Shard::Segment& segment : shard.segments()) {
    at::Tensor stretch = shard.view(live, segment).detach();
    stretch.set_requires_grad(true);
    optimizer.param_groups()[segment.group].params().push_back(stretch);
  }
  give_birth_state(optimizer);
  restore_gradients(optimizer, shard, gradients);
}

void restore_gradients(torch::optim::Optimizer& optimizer, const Shard& shard, const at::Tensor& gradients) {
  // Below autograd, so that it does not count them as views, which zero_grad() may not detach in place.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<std::size_t> next(optimizer.param_groups().size(), 0);
  for (const Shard::Segment& segment : shard.segments()) {
    at::Tensor& stretch = optimizer.param_groups()[segment.group].params()[next[segment.group]++];
    stretch.mutable_grad() = gradients.narrow(0, segment.local.begin, segment.local.size());
  }
}

}  // namespace co2
