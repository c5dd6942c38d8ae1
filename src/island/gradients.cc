#include "island/gradients.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trace/bytes.h"

namespace co2 {

double Gradients::clip(double max_norm) {
  if (!(max_norm > 0)) {
    throw OptionError(
        fmt::format("max_norm = {} is not allowed for clipping gradients: it must be positive", max_norm));
  }
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = final_ones();
  double squared = 0;
  for (const at::Tensor& gradient : gradients) {
    const double norm = at::linalg_vector_norm(gradient, 2).item<double>();
    squared += norm * norm;
  }
  const double norm = std::sqrt(sum_over_holders(squared));
  if (norm > max_norm) {
    for (const at::Tensor& gradient : gradients) gradient.mul_(max_norm / (norm + 1e-6));
  }
  return norm;
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

void drop_gradients_of(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
}

bool OwnGradients::finish(std::int64_t /*round*/, Use use) {
  std::int64_t bytes = 0;
  for (const at::Tensor& gradient : gradients_of(parameters_)) bytes += bytes_of(gradient);
  most_bytes_ = std::max(most_bytes_, bytes);
  if (use != Use::kStep) drop_gradients_of(parameters_);
  return use == Use::kStep;
}

}  // namespace co2
