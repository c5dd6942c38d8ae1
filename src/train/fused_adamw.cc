#include "train/fused_adamw.h"

#include <torch/torch.h>

#include <map>
#include <memory>
#include <vector>

namespace co2::train {
namespace {

using State = torch::optim::AdamWParamState;

/// The tensors that one call of the kernel works on: those that have taken the same number of steps.
struct Lists {
  std::vector<at::Tensor> parameters, gradients, means, squares, largest, steps;
};

}  // namespace

void FusedAdamW::allocate_state() {
  for (const auto& group : param_groups()) {
    const auto& options = static_cast<const torch::optim::AdamWOptions&>(group.options());
    for (const auto& parameter : group.params()) {
      if (parameter.requires_grad()) state_of(parameter, options.amsgrad());
    }
  }
}

State& FusedAdamW::state_of(const at::Tensor& parameter, bool amsgrad) {
  auto& slot = state_[parameter.unsafeGetTensorImpl()];
  if (!slot) {
    auto fresh = std::make_unique<State>();
    fresh->exp_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    fresh->exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    if (amsgrad) fresh->max_exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    slot = std::move(fresh);
  }
  return static_cast<State&>(*slot);
}

torch::Tensor FusedAdamW::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const at::NoGradGuard no_grad;
  for (auto& group : param_groups()) {
    const auto& options = static_cast<const torch::optim::AdamWOptions&>(group.options());
    std::map<std::int64_t, Lists> by_step;
    for (auto& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      TORCH_CHECK(!parameter.grad().is_sparse(), "AdamW does not support sparse gradients");
      State& state = state_of(parameter, options.amsgrad());
      state.step(state.step() + 1);
      auto& lists = by_step[state.step()];
      lists.parameters.push_back(parameter);
      lists.gradients.push_back(parameter.grad());
      lists.means.push_back(state.exp_avg());
      lists.squares.push_back(state.exp_avg_sq());
      if (options.amsgrad()) lists.largest.push_back(state.max_exp_avg_sq());
    }
    const auto [beta1, beta2] = options.betas();
    for (auto& [step, lists] : by_step) {
      lists.steps.assign(lists.parameters.size(),
                         at::full({}, static_cast<double>(step), lists.parameters[0].options().dtype(at::kFloat)));
      at::_fused_adamw_(lists.parameters, lists.gradients, lists.means, lists.squares, lists.largest, lists.steps,
                        options.lr(), beta1, beta2, options.weight_decay(), options.eps(), options.amsgrad(),
                        /*maximize=*/false);
    }
  }
  return loss;
}

}  // namespace co2::train
