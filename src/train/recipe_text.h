#pragma once

#include "options/recipe.h"

#include <string>

namespace co2::train {

/// Settings as a person reads them.
std::string recipe_text(const Recipe& recipe);
/// Why a ZeRO stage that was asked for does not apply.
std::string nothing_to_shard_text(int zero);

}  // namespace co2::train
