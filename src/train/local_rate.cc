#include "train/local_rate.h"

#include <cmath>

namespace co2::train {

double local_rate_factor(const Recipe& recipe, const std::string& optimizer, int local_steps, int workers) {
  const bool adam = optimizer == "adam" || optimizer == "adamw";
  const bool keeps = recipe.exchange == Recipe::Exchange::kProgress && recipe.restart == Restart::kKeep;
  if (!adam || !keeps || momentum_of(recipe, local_steps) > 0) return 1;
  return std::sqrt(static_cast<double>(workers) / recipe.island_size);
}

}  // namespace co2::train
