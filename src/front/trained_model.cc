#include "front/trained_model.h"

#include <co2/error.h>
#include <co2/unit.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "front/optimizer_state.h"

namespace co2 {

namespace {

using Places = std::unordered_map<const void*, std::size_t>;  // of tensors, by identity

const void* identity(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }

/// What the optimizer remembers of a parameter so far, as far as one tensor of a shard can't have it both ways.
std::vector<std::int64_t> memory_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) return {};
  const StateFields fields = fields_of(*found->second);
  std::vector<std::int64_t> memory{fields.step};
  for (const StateFields::Field& field : fields.tensors) memory.push_back(field.tensor->defined() ? 1 : 0);
  return memory;
}

std::vector<Parameter> trained_parameters(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer) {
  Places places;
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters()) {
    if (places.emplace(identity(item.value()), names.size()).second) names.push_back(item.key());
  }
  struct Entry {
    std::size_t place;
    Parameter parameter;
  };
  std::vector<Entry> entries;
  std::map<std::vector<std::int64_t>, int> kinds;
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    for (const at::Tensor& tensor : optimizer.param_groups()[g].params()) {
      if (!tensor.requires_grad()) continue;
      const auto found = places.find(identity(tensor));
      const bool in_model = found != places.end();  // others come last
      const int kind = kinds.emplace(memory_of(optimizer, tensor), static_cast<int>(kinds.size())).first->second;
      entries.push_back(
          {in_model ? found->second : names.size(),
           {tensor, in_model ? names[found->second] : fmt::format("(optimizer {})", entries.size()), g, kind}});
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.place < b.place; });
  std::vector<Parameter> parameters;
  for (Entry& entry : entries) parameters.push_back(std::move(entry.parameter));
  return parameters;
}

/// Without islands nobody needs units, but a checkpoint of a run that had some may; then what is wrong is no error.
std::vector<ParameterUnit> units_of(torch::nn::Module& model, const std::vector<Parameter>& parameters, bool needed) {
  Places places;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].tensor.numel() > 0) places.emplace(identity(parameters[i].tensor), i);
  }
  std::vector<ParameterUnit> units;
  std::unordered_map<std::size_t, const UnitModule*> owners;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    auto* unit = dynamic_cast<UnitModule*>(module.get());
    if (unit == nullptr) continue;
    std::vector<std::size_t> members;
    for (const at::Tensor& parameter : unit->parameters()) {
      const auto found = places.find(identity(parameter));
      if (found == places.end()) continue;
      const auto [owner, first] = owners.emplace(found->second, unit);
      if (first) members.push_back(found->second);
      if (owner->second != unit && !needed) return {};
      if (owner->second != unit) {  // but two modules inside of one unit may be tied
        throw OptionError(
            "a parameter belongs to two units: a co2::UnitModule must not contain another one, nor be tied to it by a "
            "parameter that they share");
      }
    }
    if (members.empty()) continue;
    std::sort(members.begin(), members.end());
    units.push_back(
        {std::move(members), [unit](std::shared_ptr<UnitKeeper> keeper) { unit->set_unit_keeper(std::move(keeper)); }});
  }
  return units;
}

}  // namespace

TrainedModel trained_model(torch::nn::Module& model, const torch::optim::Optimizer& optimizer, const Recipe& recipe) {
  TrainedModel result;
  result.parameters = trained_parameters(model, optimizer);
  Places trained;
  for (const Parameter& parameter : result.parameters) trained.emplace(identity(parameter.tensor), 0);
  for (const at::Tensor& parameter : model.parameters()) {
    if (!trained.contains(identity(parameter))) result.others.push_back(parameter);
  }
  for (const auto& item : model.named_buffers()) result.buffers.push_back({item.key(), item.value()});
  result.units = units_of(model, result.parameters, recipe.island_size > 1);
  result.description = kind_of(optimizer);
  result.scales_rates = true;
  if (has_second_moments(optimizer)) {
    result.second_moments = [&optimizer](const std::vector<TrainedTensor>& trained_tensors) {
      std::vector<SecondMoment> moments;
      for (const TrainedTensor& each : trained_tensors) {
        moments.push_back(
            {second_moment_of(optimizer, each.tensor), second_moment_decay(optimizer.param_groups()[each.group])});
      }
      return moments;
    };
  }
  return result;
}

}  // namespace co2
