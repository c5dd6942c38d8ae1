#pragma once

#include <co2/cluster.h>

#include <optional>

#include "cluster/environment.h"
#include "train/config.h"

namespace co2::cli {

/// Settles the number of workers with the launcher that started us, if there is one. Returns our place in its job.
/// Throws OptionError if the user asked for another number, ClusterError if the launcher's variables are wrong.
std::optional<Placement> settle_workers(train::TrainConfig& config, bool workers_given);

/// Sets the number of computing threads of this worker. LibTorch takes a thread per usable core. That is right for
/// workers that are alone or bound to cores of their own; srun may bind nobody, and then all workers of a machine would
/// compete for all of it.
void share_the_machine(const train::TrainConfig& config, const Cluster& cluster);

}  // namespace co2::cli
