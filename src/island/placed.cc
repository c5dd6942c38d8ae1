#include "island/placed.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>

#include "options/wires.h"

namespace co2 {

Recipe placed(Recipe recipe, int workers) {
  if (recipe.exchange == Recipe::Exchange::kGradients) {
    if (recipe.island_size != 1 && recipe.island_size != workers) {
      throw OptionError(fmt::format(
          "island_size = {} is not allowed with ddp, which is one island of all {} workers: leave it out, or take "
          "another strategy between islands",
          recipe.island_size, workers));
    }
    recipe.island_size = workers;
  }
  if (workers % recipe.island_size != 0) {
    throw OptionError(fmt::format(
        "island_size = {} is not allowed with {} workers: it must divide their number, so that all islands are equal",
        recipe.island_size, workers));
  }
  if (recipe.island_size == 1 && recipe.zero > 0 && workers > 1) {
    throw OptionError(
        fmt::format("zero = {} is not allowed with islands of one worker, which have nobody to share with: set "
                    "island_size to the number of workers that do, or leave zero out",
                    recipe.zero));
  }
  if (recipe.island_size == workers && in_blocks(recipe.wire)) {  // what is told to nobody needs no rounding
    recipe.wire = Wire::kPlain;
    recipe.adaptive_wire = false;
  }
  if (recipe.island_size == 1) recipe.zero = 0;  // a worker on its own: the same program runs there too
  if (recipe.agree_moments > 0 && recipe.island_size > 1 && recipe.zero == 0) {
    throw OptionError(fmt::format(
        "agree_moments = {} with zero = 0 is not allowed in islands, all of whose workers would send the same over the "
        "slow network: use zero = 1 or more",
        recipe.agree_moments));
  }
  if (recipe.compute == Compute::kBfloat16 && recipe.island_size > 1 && recipe.zero == 0) {
    throw OptionError(
        "compute = bfloat16 keeps the parameters themselves in the shard, which zero = 0 does not have: use zero = 1 "
        "or more");
  }
  return recipe;
}

bool trains_shard(const Recipe& recipe) { return recipe.zero > 0 || recipe.compute == Compute::kBfloat16; }

std::int64_t island_unit_bytes(std::int64_t model_bytes, std::int64_t bucket_bytes) {
  constexpr std::int64_t kUnits = 12;
  constexpr std::int64_t kSmallest = 1 << 20;  // below, a collective is mostly latency
  return std::min(bucket_bytes, std::max(kSmallest, model_bytes / kUnits));
}

}  // namespace co2
