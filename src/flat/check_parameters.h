#pragma once

#include <co2/parameters.h>

namespace co2 {

/// Throws OptionError, before anything has been changed, if there is nothing to train, if something of it can't be
/// trained (no floating-point leaf, no memory, elements that share memory), would be trained twice, or if a unit names
/// what is not there.
void check_parameters(const TrainedModel& model);

}  // namespace co2
