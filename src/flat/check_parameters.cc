#include "flat/check_parameters.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "flat/tensor_memory.h"

namespace co2 {

namespace {

void check_one(const Parameter& parameter, const at::Tensor& first, bool has_first_values) {
  const at::Tensor& tensor = parameter.tensor;
  if (!tensor.defined()) throw OptionError(fmt::format("the parameter {} is no tensor (undefined)", parameter.name));
  if (tensor.layout() != at::kStrided) {
    throw OptionError(fmt::format("the parameter {} is sparse: only dense tensors can be trained", parameter.name));
  }
  constexpr std::size_t kMostGroups = 1 << 20;
  if (parameter.group >= kMostGroups) {
    throw OptionError(
        fmt::format("the parameter {} is in group {}: groups are counted from 0", parameter.name, parameter.group));
  }
  if (!tensor.is_floating_point()) {
    throw OptionError(fmt::format("the parameter {} is of {}: only floating-point numbers can be trained",
                                  parameter.name, c10::toString(tensor.scalar_type())));
  }
  if (!tensor.requires_grad() || !tensor.is_leaf()) {
    throw OptionError(
        fmt::format("the parameter {} {}: leave it out, or make it a leaf that does (detach(), set_requires_grad())",
                    parameter.name, tensor.requires_grad() ? "is no leaf" : "requires no gradient"));
  }
  if (tensor.dtype() != first.dtype() || tensor.device() != first.device()) {
    throw OptionError(
        fmt::format("all trained parameters must have one dtype and device, but there are {} on {} and {} on {}",
                    c10::toString(first.scalar_type()), first.device().str(), c10::toString(tensor.scalar_type()),
                    tensor.device().str()));
  }
  if (tensor.is_meta()) {
    throw OptionError(fmt::format(
        "the parameter {} is on the meta device, where there are no values: give it some first", parameter.name));
  }
  if (tensor.numel() == 0 || !tensor.has_storage()) return;
  if (!has_memory(tensor) && !has_first_values) {
    throw OptionError(fmt::format(
        "the parameter {} has no memory: a Synchronizer with zero = 3 has taken it apart, and was destroyed without "
        "finish(), which brings the whole model back; or it was given to release_memory(), and the Synchronizer was "
        "not given the first values",
        parameter.name));
  }
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) != 0 || tensor.size(d) == 1) continue;
    throw OptionError(fmt::format(
        "the parameter {} is expanded: its elements share memory, and would be different ones from now on. Give "
        "the optimizer the tensor that was expanded, or a clone() of this one",
        parameter.name));
  }
}

/// Views that share some memory, though they begin at different places.
void check_overlaps(std::vector<const Parameter*> parameters) {
  const auto begin = [](const Parameter* p) { return static_cast<const std::byte*>(p->tensor.const_data_ptr()); };
  const auto bytes = [](const Parameter* p) {  // from its first to its last element, whatever the strides
    std::int64_t last = 0;
    for (std::int64_t d = 0; d < p->tensor.dim(); ++d) last += (p->tensor.size(d) - 1) * p->tensor.stride(d);
    return (last + 1) * static_cast<std::int64_t>(p->tensor.element_size());
  };
  std::ranges::sort(parameters, std::less<>{}, begin);
  for (std::size_t i = 1; i < parameters.size(); ++i) {
    const Parameter* const before = parameters[i - 1];
    if (begin(before) + bytes(before) <= begin(parameters[i])) continue;
    if (!before->tensor.is_contiguous() || !parameters[i]->tensor.is_contiguous()) continue;  // may be between them
    throw OptionError(
        fmt::format("the parameters {} and {} share some memory, and would not any more: give the optimizer the tensor "
                    "that they are parts of, or a clone() of each",
                    before->name, parameters[i]->name));
  }
}

void check_units(const TrainedModel& model) {
  std::unordered_set<std::size_t> taken;
  for (const ParameterUnit& unit : model.units) {
    if (!unit.keep) throw OptionError("a unit has no function that is given its keeper: set ParameterUnit::keep");
    for (const std::size_t member : unit.parameters) {
      if (member >= model.parameters.size()) {
        throw OptionError(
            fmt::format("a unit names parameter {}, but there are only {}", member, model.parameters.size()));
      }
      if (!taken.insert(member).second) {
        throw OptionError(fmt::format("the parameter {} belongs to two units", model.parameters[member].name));
      }
    }
  }
}

}  // namespace

void check_parameters(const TrainedModel& model) {
  if (model.parameters.empty()) throw OptionError("there is no parameter that requires a gradient");
  std::unordered_map<const void*, const Parameter*> by_memory;
  std::unordered_set<std::string> names;
  std::vector<const Parameter*> in_memory;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.name.empty()) throw OptionError("a parameter has no name: saved state and messages need one");
    if (!names.insert(parameter.name).second) {
      throw OptionError(fmt::format("two parameters have the name {}: give each a name of its own", parameter.name));
    }
    check_one(parameter, model.parameters.front().tensor, static_cast<bool>(model.first_values));
    if (parameter.tensor.numel() == 0 || !parameter.tensor.has_storage() || !has_memory(parameter.tensor)) continue;
    const auto [shared, alone] = by_memory.emplace(parameter.tensor.const_data_ptr(), &parameter);
    in_memory.push_back(&parameter);
    if (alone) continue;
    throw OptionError(fmt::format(
        "the parameters {} and {} are tied: they have the same memory, and would be two weights from now on. Train one "
        "tensor, in one group, and use it in both places",
        shared->second->name, parameter.name));
  }
  check_overlaps(std::move(in_memory));
  check_units(model);
  for (const at::Tensor& other : model.others) {
    if (!other.defined() || has_memory(other)) continue;
    throw OptionError("a frozen parameter has no memory: release_memory() is for those that are trained");
  }
  names.clear();
  for (const auto& [name, buffer] : model.buffers) {
    if (!names.insert(name).second) {
      throw OptionError(fmt::format("two buffers have the name {}: give each a name of its own", name));
    }
  }
}

}  // namespace co2
