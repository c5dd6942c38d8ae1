#pragma once

#include <ATen/core/Tensor.h>
#include <co2/parameters.h>
#include <torch/nn/module.h>

#include <memory>
#include <utility>

namespace co2 {

/// A part of a model whose parameters ZeRO 3 brings together only while they are used. Derive the blocks of your model
/// from it instead of from torch::nn::Module, and wrap the body of their forward:
///
///     struct Block : co2::UnitModule {
///       at::Tensor forward(const at::Tensor& x) {
///         return as_unit([&] { return second(torch::relu(first(x))); });
///       }
///     };
///
/// In an island without ZeRO 3, what a step has changed in a unit may still be on its way to this worker until the
/// unit's next forward. So parameters of a unit are used inside of as_unit() only, once per pass, and are read between
/// steps only after Synchronizer::finish() or in with_consensus(); units do not contain units. Some workers may leave a
/// unit out, but those that they use, they use in the same order (docs/zero.md has all of it).
class UnitModule : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  template <typename Body>
  at::Tensor as_unit(const Body& body) {
    const std::shared_ptr<UnitKeeper> keeper = keeper_;
    if (!keeper) return body();
    keeper->before_forward();
    return keeper->after_forward(body());
  }

  void set_unit_keeper(std::shared_ptr<UnitKeeper> keeper) { keeper_ = std::move(keeper); }

 private:
  std::shared_ptr<UnitKeeper> keeper_;
};

/// Frees the memory of all parameters of a module that are trained, until a Synchronizer gives them some. Call it on
/// every block of a large model as soon as it is made. What has no memory must not be touched.
inline void release_memory(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.requires_grad()) release_memory(parameter);
  }
}

}  // namespace co2
