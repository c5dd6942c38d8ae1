#include "island/layout.h"

#include <co2/error.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "flat/places.h"
#include "island/placed.h"
#include "trace/bytes.h"

namespace co2 {

std::vector<UnitModule*> units_of(torch::nn::Module& model, torch::optim::Optimizer& optimizer) {
  std::unordered_set<const void*> trained;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.requires_grad() && parameter.numel() > 0) trained.insert(parameter.unsafeGetTensorImpl());
    }
  }
  std::vector<UnitModule*> units;
  std::unordered_map<const void*, UnitModule*> owners;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    auto* unit = dynamic_cast<UnitModule*>(module.get());
    if (unit == nullptr) continue;
    bool trains = false;
    for (const at::Tensor& parameter : unit->parameters()) {
      if (!trained.contains(parameter.unsafeGetTensorImpl())) continue;
      trains = true;
      const auto [owner, first] = owners.emplace(parameter.unsafeGetTensorImpl(), unit);
      if (!first && owner->second != unit) {  // but two modules inside of one unit may be tied
        throw OptionError(
            "a parameter belongs to two units: a co2::UnitModule must not contain another one, nor be tied to it by a "
            "parameter that they share");
      }
    }
    if (trains) units.push_back(unit);
  }
  return units;
}

FlatLayout layout_for(const Recipe& recipe, torch::nn::Module& model, const std::vector<UnitModule*>& units) {
  const bool divided = recipe.zero > 0 || recipe.exchange == Recipe::Exchange::kProgress;
  if (recipe.island_size == 1 || !divided) return {};
  FlatLayout layout{.parts = recipe.island_size, .order = model.parameters()};
  std::int64_t bytes = 0;
  for (const at::Tensor& parameter : layout.order) bytes += bytes_of(parameter);
  const std::int64_t element = layout.order.empty() ? 4 : layout.order.front().element_size();
  layout.unit_elements = std::max<std::int64_t>(1, island_unit_bytes(bytes, recipe.bucket_bytes) / element);
  for (UnitModule* unit : units) layout.units.push_back(unit->parameters());
  if (layout.units.empty() && recipe.zero == 3) {
    throw OptionError(
        "zero = 3 needs a model with units, whose parameters come and go: derive its blocks from co2::UnitModule, or "
        "use zero = 2");
  }
  return layout;
}

std::vector<at::Tensor> in_model_order(std::vector<at::Tensor> trained, const torch::nn::Module& model) {
  const Places order(model.parameters());
  std::stable_sort(trained.begin(), trained.end(),
                   [&](const at::Tensor& a, const at::Tensor& b) { return order.of(a) < order.of(b); });
  return trained;
}

}  // namespace co2
