#pragma once

#include <cstdint>

#include "options/recipe.h"

namespace co2 {

/// A recipe as it is carried out by so many workers: `ddp` is one island of all of them, a worker on its own has
/// nothing to shard, and an island on its own sends no blocks. Throws OptionError if they can't be divided into islands
/// of the wanted size, or if ZeRO is wanted in islands of one.
Recipe placed(Recipe recipe, int workers);

/// The inner optimizer trains a worker's shard in place of the model's parameters.
bool trains_shard(const Recipe& recipe);

/// How large the units are that gradients of an island travel in: a model of any size is cut into several, so that
/// most of them travel while backward computes the rest.
std::int64_t island_unit_bytes(std::int64_t model_bytes, std::int64_t bucket_bytes);

}  // namespace co2
