#include "train/recipe_text.h"

#include <fmt/format.h>

namespace co2::train {

std::string recipe_text(const Recipe& recipe) {
  std::string text(name(recipe.strategy));
  if (recipe.island_size > 1) text += fmt::format(", islands of {}, ZeRO {}", recipe.island_size, recipe.zero);
  if (recipe.compute == Compute::kBfloat16) text += ", computing in bfloat16";
  if (recipe.exchange != Recipe::Exchange::kProgress) return text;
  text += recipe.local_steps == 1 ? ", exchange in every step"
                                  : fmt::format(", exchange every {} steps", recipe.local_steps);
  if (recipe.fragments > 1) text += fmt::format(" in {} fragments", recipe.fragments);
  if (recipe.wire != Wire::kPlain) text += fmt::format(", wire {}", name(recipe.wire));
  return text;
}

std::string nothing_to_shard_text(int zero) {
  return fmt::format("zero {} has nothing to shard: there is only one worker", zero);
}

}  // namespace co2::train
