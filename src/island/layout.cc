#include "island/layout.h"

#include <co2/error.h>

#include <algorithm>

#include "island/placed.h"
#include "trace/bytes.h"

namespace co2 {

FlatLayout layout_for(const Recipe& recipe, const TrainedModel& model) {
  const bool divided = recipe.zero > 0 || recipe.exchange == Recipe::Exchange::kProgress;
  if (recipe.island_size == 1 || !divided) return {};
  FlatLayout layout{.parts = recipe.island_size};
  layout.apart = recipe.zero == 3;
  std::int64_t bytes = 0;
  for (const Parameter& parameter : model.parameters) bytes += bytes_of(parameter.tensor);
  const std::int64_t element = model.parameters.front().tensor.element_size();
  layout.unit_elements = std::max<std::int64_t>(1, island_unit_bytes(bytes, recipe.bucket_bytes) / element);
  for (const ParameterUnit& unit : model.units) layout.units.push_back(unit.parameters);
  if (layout.units.empty() && recipe.zero == 3) {
    throw OptionError(
        "zero = 3 needs a model with units, whose parameters come and go: derive its blocks from co2::UnitModule, or "
        "use zero = 2");
  }
  return layout;
}

}  // namespace co2
