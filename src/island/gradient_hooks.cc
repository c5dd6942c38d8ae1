#include "island/gradient_hooks.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>

namespace co2 {

class GradientHooks::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  using Users = std::unique_ptr<torch::autograd::PostAccumulateGradHook>;

  Hook(GradientHooks& hooks, std::size_t parameter, Users users)
      : hooks_(hooks), parameter_(parameter), users_(std::move(users)) {}
  void operator()(const torch::autograd::Variable& variable) override {
    if (users_) (*users_)(variable);
    hooks_.called(parameter_);
  }
  bool belongs_to(const GradientHooks& hooks) const { return &hooks_ == &hooks; }
  Users take_users() { return std::move(users_); }

 private:
  GradientHooks& hooks_;
  std::size_t parameter_;
  Users users_;
};

GradientHooks::GradientHooks(std::vector<at::Tensor> parameters, int accumulation_steps, FirstFailure& failure,
                             std::function<void(std::size_t, int)> on_gradient)
    : parameters_(std::move(parameters)),
      accumulation_steps_(accumulation_steps),
      failure_(failure),
      on_gradient_(std::move(on_gradient)),
      passes_(parameters_.size()) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) join(i);
}

GradientHooks::~GradientHooks() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (Hook* hook = ours(i)) torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i], hook->take_users());
  }
}

GradientHooks::Hook* GradientHooks::ours(std::size_t parameter) const {
  auto* hook = dynamic_cast<Hook*>(torch::autograd::impl::post_acc_grad_hooks(parameters_[parameter]).get());
  return hook != nullptr && hook->belongs_to(*this) ? hook : nullptr;
}

/// There is room for one hook per tensor, so ours carries the one that it finds there.
void GradientHooks::join(std::size_t parameter) {
  if (ours(parameter) != nullptr) return;
  Hook::Users users = std::move(torch::autograd::impl::post_acc_grad_hooks(parameters_[parameter]));
  torch::autograd::impl::set_post_acc_grad_hooks(parameters_[parameter],
                                                 std::make_unique<Hook>(*this, parameter, std::move(users)));
}

void GradientHooks::called(std::size_t parameter) {
  failure_.watch([&] {
    if (++passes_[parameter] > accumulation_steps_) too_many_ = true;
    check_passes();
    on_gradient_(parameter, passes_[parameter]);
  });
}

void GradientHooks::check_passes() const {
  if (!too_many_) return;
  throw OptionError(fmt::format(
      "backward ran more often before step() than accumulation_steps = {} says: set accumulation_steps to "
      "the number of backward passes per step. To leave a step out call skip_step() in place of step(), and "
      "to take back what backward has done so far call discard_gradients()",
      accumulation_steps_));
}

bool GradientHooks::any_pass() const {
  return std::any_of(passes_.begin(), passes_.end(), [](int passes) { return passes > 0; });
}

void GradientHooks::reset() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) join(i);
  std::fill(passes_.begin(), passes_.end(), 0);
  too_many_ = false;
}

}  // namespace co2
