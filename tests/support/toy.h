#pragma once

#include <co2/parameters.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <utility>
#include <vector>

namespace co2::test {

/// A model of free parameters whose gradients the test sets itself.
struct Toy : torch::nn::Module {
  explicit Toy(const std::vector<std::int64_t>& sizes, double start = 0) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      parameter.push_back(register_parameter(fmt::format("p{}", i), torch::full({sizes[i]}, start)));
    }
  }
  /// Every gradient is `value`, so that plain SGD moves every element by -rate * value per step.
  void set_gradients(double value) {
    for (at::Tensor& p : parameter) p.mutable_grad() = torch::full_like(p, value);
  }
  std::vector<at::Tensor> parameter;
};

/// Tensors as the Core wants them, in one group unless `group_of(i)` says otherwise.
template <typename GroupOf>
std::vector<Parameter> as_parameters(const std::vector<at::Tensor>& tensors, const GroupOf& group_of) {
  std::vector<Parameter> parameters;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    parameters.push_back({tensors[i], fmt::format("p{}", i), static_cast<std::size_t>(group_of(i))});
  }
  return parameters;
}
inline std::vector<Parameter> as_parameters(const std::vector<at::Tensor>& tensors) {
  return as_parameters(tensors, [](std::size_t) { return 0; });
}

inline torch::optim::SGD plain_sgd(Toy& toy, double rate) {
  return torch::optim::SGD(toy.parameters(), torch::optim::SGDOptions(rate));
}

}  // namespace co2::test
