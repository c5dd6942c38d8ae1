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
  Hook(GradientHooks& hooks, std::size_t parameter) : hooks_(hooks), parameter_(parameter) {}
  void operator()(const torch::autograd::Variable&) override { hooks_.called(parameter_); }

 private:
  GradientHooks& hooks_;
  std::size_t parameter_;
};

GradientHooks::GradientHooks(std::vector<at::Tensor> parameters, int accumulation_steps, FirstFailure& failure,
                             std::function<void(std::size_t, int)> on_gradient)
    : parameters_(std::move(parameters)),
      accumulation_steps_(accumulation_steps),
      failure_(failure),
      on_gradient_(std::move(on_gradient)),
      passes_(parameters_.size()) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i], std::make_unique<Hook>(*this, i));
  }
}

GradientHooks::~GradientHooks() {
  for (const at::Tensor& parameter : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
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

void GradientHooks::reset() {
  std::fill(passes_.begin(), passes_.end(), 0);
  too_many_ = false;
}

}  // namespace co2
