#include "island/gradients.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "trace/bytes.h"

namespace co2 {

double Gradients::clip(double max_norm) {
  if (!(max_norm > 0)) {
    throw OptionError(
        fmt::format("max_norm = {} is not allowed for clipping gradients: it must be positive", max_norm));
  }
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = final_ones();
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients) norms.push_back(at::linalg_vector_norm(gradient, 2).to(at::kDouble));
  double squared = 0;
  if (!norms.empty()) {
    const at::Tensor all =
        at::stack(norms).cpu();  // at once: on a device every look at a number waits for all before it
    for (const double norm : std::span(all.const_data_ptr<double>(), norms.size())) squared += norm * norm;
  }
  const double norm = std::sqrt(sum_over_holders(squared));
  if (norm > max_norm) {
    for (const at::Tensor& gradient : gradients) gradient.mul_(max_norm / (norm + 1e-6));
  }
  return norm;
}

std::vector<at::Tensor> tensors_of(const std::vector<Parameter>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const Parameter& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

std::vector<TrainedTensor> each_by_itself(const std::vector<Parameter>& parameters) {
  std::vector<TrainedTensor> trained;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    trained.push_back({parameters[i].tensor, parameters[i].group, {{i, 0, parameters[i].tensor.numel(), 0}}});
  }
  return trained;
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
  for (const at::Tensor& gradient : gradients_of(parameters_)) {
    if (gradient.layout() == at::kStrided) bytes += bytes_of(gradient);
  }
  most_bytes_ = std::max(most_bytes_, bytes);
  if (use != Use::kStep) drop_gradients_of(parameters_);
  return use == Use::kStep;
}

}  // namespace co2
