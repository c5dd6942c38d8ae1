#include "front/check_trained.h"

#include <ATen/core/Tensor.h>
#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "flat/tensor_memory.h"

namespace co2 {

namespace {

using Names = std::unordered_map<const void*, std::vector<std::string>>;

/// Under all names that it has in the model: a tied weight has one in each of its modules.
Names names_in(const torch::nn::Module& model) {
  Names names;
  for (const auto& item : model.named_parameters()) names[item.value().unsafeGetTensorImpl()].push_back(item.key());
  return names;
}

std::string name_of(const at::Tensor& parameter, const Names& names) {
  const auto found = names.find(parameter.unsafeGetTensorImpl());
  return found == names.end() ? "(not of this model)" : fmt::format("{}", fmt::join(found->second, " = "));
}

void check_once(const at::Tensor& parameter, const at::Tensor& before, const Names& names) {
  if (!parameter.is_same(before)) {
    throw OptionError(fmt::format(
        "the parameters {} and {} are tied: two tensors with the same memory, which would be two weights from now on. "
        "Register one tensor in both modules, and give it to the optimizer once",
        name_of(before, names), name_of(parameter, names)));
  }
  const auto found = names.find(parameter.unsafeGetTensorImpl());
  if (found == names.end() || found->second.size() < 2) {
    throw OptionError(
        fmt::format("the optimizer has the same parameter twice, {}: give each parameter to one group only",
                    name_of(parameter, names)));
  }
  throw OptionError(fmt::format(
      "the parameters {} are tied: they are one tensor, which the optimizer has twice and would update twice in every "
      "step. LibTorch's parameters() lists a tied weight once per module: leave out those whose unsafeGetTensorImpl() "
      "was there before when you make the optimizer",
      fmt::join(found->second, " and ")));
}

}  // namespace

void check_trained(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<const torch::optim::LBFGS*>(&optimizer) != nullptr) {
    throw OptionError("LBFGS evaluates the loss inside its step, which step() can't do: use another optimizer");
  }
  const Names names = names_in(model);
  bool any = false;
  bool of_the_model = false;
  std::unordered_map<const void*, at::Tensor> by_memory;
  std::unordered_map<const void*, at::Tensor> by_identity;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto [same, first_time] = by_identity.emplace(parameter.unsafeGetTensorImpl(), parameter);
      if (!first_time) check_once(parameter, same->second, names);
      if (!parameter.requires_grad()) continue;
      any = true;
      of_the_model = of_the_model || names.contains(parameter.unsafeGetTensorImpl());
      if (parameter.numel() == 0 || !parameter.has_storage() || !has_memory(parameter)) continue;
      const auto [shared, alone] = by_memory.emplace(parameter.const_data_ptr(), parameter);
      if (!alone) check_once(parameter, shared->second, names);
    }
  }
  if (any && !of_the_model) {
    throw OptionError(
        "the optimizer trains nothing of the model: it was made for another one, or a Synchronizer with zero > 0 or "
        "compute = bfloat16 has given it its shard in place of the model's parameters, for good. Make a new optimizer "
        "for each Synchronizer");
  }
}

}  // namespace co2
