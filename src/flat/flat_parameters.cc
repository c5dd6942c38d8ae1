#include "flat/flat_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <unordered_set>

namespace co2 {

namespace {
std::int64_t round_up(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
}  // namespace

FlatParameters::FlatParameters(torch::optim::Optimizer& optimizer, const FlatLayout& layout) : parts_(layout.parts) {
  std::int64_t total = 0;
  std::int64_t unit_begin = 0;
  const auto end_unit = [&] {
    total = unit_begin + round_up(total - unit_begin, kAlignment * parts_);
    if (total > unit_begin) units_.push_back({unit_begin, total});
    unit_begin = total;
  };
  std::unordered_set<const void*> seen;
  for (const auto& group : optimizer.param_groups()) {
    const std::int64_t begin = total;
    for (const at::Tensor& parameter : group.params()) {
      if (!seen.insert(parameter.unsafeGetTensorImpl()).second) {
        throw OptionError("the optimizer has the same parameter twice: give each parameter to one group only");
      }
      if (!parameter.requires_grad()) {
        frozen_.push_back(parameter);
        continue;
      }
      if (!parameters_.empty() &&
          (parameter.dtype() != parameters_.front().dtype() || parameter.device() != parameters_.front().device())) {
        throw OptionError(
            fmt::format("all trained parameters must have one dtype and device, but there are {} on {} "
                        "and {} on {}",
                        c10::toString(parameters_.front().scalar_type()), parameters_.front().device().str(),
                        c10::toString(parameter.scalar_type()), parameter.device().str()));
      }
      parameters_.push_back(parameter);
      offsets_.push_back(total);
      total += round_up(parameter.numel(), kAlignment);
      if (layout.unit_elements > 0 && total - unit_begin >= layout.unit_elements) end_unit();
    }
    groups_.push_back({begin, total});
  }
  end_unit();
  groups_.back().end = total;
  if (parameters_.empty()) throw OptionError("the optimizer has no parameter that requires a gradient");

  const at::NoGradGuard no_grad;
  data_ = at::zeros({total}, parameters_.front().options().requires_grad(false));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    data_.narrow(0, offsets_[i], parameters_[i].numel()).copy_(parameters_[i].reshape({-1}));
  }
  point_to(data_);
}

void FlatParameters::point_to(const at::Tensor& buffer) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i];
    parameter.set_data(buffer.narrow(0, offsets_[i], parameter.numel()).view(parameter.sizes()));
  }
}

void FlatParameters::check_frozen() const {
  for (const at::Tensor& parameter : frozen_) {
    if (parameter.requires_grad()) {
      throw OptionError(
          "a parameter that did not require a gradient when the Synchronizer was made does now: it would "
          "not be exchanged. Make the Synchronizer after the last change of requires_grad");
    }
  }
}

}  // namespace co2
