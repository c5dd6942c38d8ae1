#pragma once

#include <co2/parameters.h>

#include "flat/flat_parameters.h"
#include "options/recipe.h"

namespace co2 {

/// How the parameters are laid out for a recipe. Throws OptionError if ZeRO 3 is wanted of a model without units.
FlatLayout layout_for(const Recipe& recipe, const TrainedModel& model);

}  // namespace co2
