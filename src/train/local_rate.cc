#include "train/local_rate.h"

#include <algorithm>
#include <cmath>

namespace co2::train {

double local_rate_factor(const Recipe& recipe, const std::string& optimizer, int local_steps, int workers) {
  const bool adam = optimizer == "adam" || optimizer == "adamw";
  const bool keeps = recipe.exchange == Recipe::Exchange::kProgress && recipe.restart == Restart::kKeep;
  if (!adam || !keeps || momentum_of(recipe, local_steps) > 0) return 1;
  return std::sqrt(static_cast<double>(workers) / recipe.island_size);
}

double risen(double factor, std::int64_t step, std::int64_t steps) {
  constexpr double kRising = 0.1;  // of the run
  const double share = static_cast<double>(step) / (kRising * static_cast<double>(std::max<std::int64_t>(steps, 1)));
  return 1 + (factor - 1) * std::min(share, 1.0);
}

}  // namespace co2::train
