#pragma once

#include <co2/communicator.h>
#include <co2/parameters.h>

#include "flat/flat_parameters.h"
#include "options/recipe.h"

namespace co2 {

/// Checks that all workers have built the same model, chosen the same options and the same kind of optimizer, before
/// anything else is exchanged. Throws ClusterError that names the first rank that differs and in what.
void check_same_everywhere(Communicator& communicator, const FlatParameters& flat, const TrainedModel& model,
                           const Recipe& recipe);

/// Of all that the state of a run must fit: model, options, kind of optimizer.
std::int64_t fingerprint_of(const FlatParameters& flat, const TrainedModel& model, const Recipe& recipe);

}  // namespace co2
