#include "island/roles.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "island/gradient_reducer.h"
#include "island/parameter_units.h"
#include "island/placed.h"
#include "island/sharded_gradients.h"
#include "island/whole_parameters.h"

namespace co2 {

bool shares_whole_gradients(const Recipe& recipe, const Island& island) {
  return !trains_shard(recipe) && (recipe.exchange == Recipe::Exchange::kGradients || island.size() > 1);
}

std::unique_ptr<ForwardParameters> make_parameters(const RoleContext& c, const at::Tensor& live) {
  const at::NoGradGuard no_grad;
  const bool narrow = c.recipe.compute == Compute::kBfloat16;
  const at::ScalarType compute = narrow ? at::kBFloat16 : c10::typeMetaToScalarType(c.flat.options().dtype());
  // Units are told apart only where parameters are divided.
  const std::vector<ParameterUnit> units = c.flat.parts() > 1 ? c.model.units : std::vector<ParameterUnit>{};
  if (c.recipe.zero == 3) {
    return std::make_unique<ParameterUnits>(c.island, c.flat, live, compute, units, c.failure, c.trace);
  }
  return std::make_unique<WholeParameters>(c.island, c.flat, c.shard, compute, units, c.trace);
}

std::unique_ptr<Gradients> make_gradients(const RoleContext& c, ForwardParameters& parameters, Witnesses witnesses) {
  const int passes = c.recipe.accumulation_steps;
  if (trains_shard(c.recipe)) {
    auto gradients =
        std::make_unique<ShardedGradients>(c.island, c.model.parameters, c.flat, c.shard, parameters.live(), passes,
                                           c.recipe.zero >= 2, std::move(witnesses), c.failure, c.trace);
    gradients->tell([&parameters](std::size_t unit) { parameters.got_gradient(unit); },
                    [&parameters, passes] { parameters.passes_over(passes); });
    parameters.on_passed([gradients = gradients.get()](std::size_t u, int count) { gradients->close(u, count); });
    return gradients;
  }
  if (shares_whole_gradients(c.recipe, c.island)) {
    return std::make_unique<GradientReducer>(c.island.inside() ? c.island.inside() : c.all, c.island.inside_control(),
                                             c.model.parameters, c.recipe.bucket_bytes, passes, std::move(witnesses),
                                             c.failure, c.trace);
  }
  return std::make_unique<OwnGradients>(c.model.parameters);
}

}  // namespace co2
