#pragma once

#include <co2/communicator.h>

#include "train/config.h"

namespace co2::cli {

/// Checks that all workers were given the same options, but for those that are about a machine and not about the run.
/// A collective of all workers, and the first one: later ones would not fit together. Throws ClusterError on all of
/// them if some differ, which names these and what they are on this worker.
void check_same_options(Communicator& workers, const train::TrainConfig& config);

}  // namespace co2::cli
