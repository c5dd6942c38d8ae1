#pragma once

#include <co2/unit.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace co2::test {

/// A layer of any size as a unit.
struct TanhUnit : UnitModule {
  TanhUnit(int in, int out) : linear(register_module("linear", torch::nn::Linear(in, out))) {}
  at::Tensor forward(const at::Tensor& x) {
    return as_unit([&] { return torch::tanh(linear(x)); });
  }
  torch::nn::Linear linear;
};

/// A unit that can be left out, whole or by half.
struct ResidualUnit : UnitModule {
  static constexpr int kWidth = 7;
  explicit ResidualUnit(int hidden) {
    first = register_module("first", torch::nn::Linear(kWidth, hidden));
    second = register_module("second", torch::nn::Linear(hidden, kWidth));
  }
  at::Tensor forward(const at::Tensor& x, bool whole = true) {
    return as_unit([&] {
      const at::Tensor hidden = torch::tanh(first(x));
      return whole ? x + second(hidden) : x + hidden.mean(1, true);
    });
  }
  torch::nn::Linear first{nullptr};
  torch::nn::Linear second{nullptr};
};

/// Units of different sizes, so that gathering another one than a neighbour does can't go unnoticed.
struct UnitModel : torch::nn::Module {
  enum class Registered { kInOrderOfUse, kBackToFront };

  explicit UnitModel(int count, Registered registered = Registered::kInOrderOfUse) {
    for (int i = 0; i < count; ++i) units.push_back(std::make_shared<ResidualUnit>(17 + 16 * i));
    for (int i = 0; i < count; ++i) {
      const int which = registered == Registered::kInOrderOfUse ? i : count - 1 - i;
      register_module("unit" + std::to_string(which), units[static_cast<std::size_t>(which)]);
    }
    last = register_module("last", torch::nn::Linear(ResidualUnit::kWidth, 1));
    // From a generator of its own: workers that are threads share the global one.
    auto random = at::detail::createCPUGenerator(3);
    const at::NoGradGuard no_grad;
    for (const at::Tensor& p : named_by_use()) p.normal_(0, 0.2, random);
  }
  /// `uses(i)`: 0 leaves the i-th unit out, 1 uses half of it, 2 all.
  at::Tensor loss(
      const at::Tensor& x, const std::function<int(int)>& uses = [](int) { return 2; }) {
    at::Tensor y = x.to(last->weight.scalar_type());
    for (int i = 0; i < static_cast<int>(units.size()); ++i) {
      if (uses(i) > 0) y = units[static_cast<std::size_t>(i)]->forward(y, uses(i) == 2);
    }
    return last(y).to(at::kFloat).square().mean();
  }
  /// The same order for both ways to register.
  std::vector<at::Tensor> named_by_use() const {
    std::vector<at::Tensor> all;
    for (const auto& unit : units) {
      for (const at::Tensor& p : unit->parameters()) all.push_back(p);
    }
    for (const at::Tensor& p : last->parameters()) all.push_back(p);
    return all;
  }
  at::Tensor flat_copy() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& p : named_by_use()) all.push_back(p.detach().reshape({-1}).to(at::kFloat).clone());
    return at::cat(all);
  }
  std::vector<std::shared_ptr<ResidualUnit>> units;
  torch::nn::Linear last{nullptr};
};

/// A batch that depends on step, pass and rank only.
inline at::Tensor unit_batch(int step, int pass, int rank) {
  auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 * step + 100 * pass + rank + 1));
  return at::randn({4, ResidualUnit::kWidth}, random);
}

}  // namespace co2::test
