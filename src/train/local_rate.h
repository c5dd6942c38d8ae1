#pragma once

#include <string>

#include "options/recipe.h"

namespace co2::train {

/// How many times the learning rate that is right for `ddp` a worker takes for its own steps, so that nobody who comes
/// from there has to know: docs/choosing-local-steps.md has the reason and the measurements.
///
/// Adam makes every step about as long as the rate, however noisy the gradient is. The mean of G such steps, which
/// short rounds move the model by, is up to √G shorter than the one step that `ddp` makes with the mean gradient. SGD's
/// mean step is just `ddp`'s. Long rounds have outer momentum instead.
double local_rate_factor(const Recipe& recipe, const std::string& optimizer, int local_steps, int workers);

}  // namespace co2::train
