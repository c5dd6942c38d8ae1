#pragma once

#include <co2/cluster.h>

#include <string>

#include "train/config.h"

namespace co2::doctor {

/// Measures and checks, as all workers of `cluster` together: each calls this with the same configuration, of which the
/// model, its data's shape, the wire and the limits of an automatic τ are used. Rank 0 prints the report on standard
/// output and says on standard error what it is doing. Returns the exit code: 0, or 3 if something makes training
/// impossible. Throws ClusterError, CommError, DataError.
int run_doctor(const train::TrainConfig& config, const Cluster& cluster, const std::string& version, bool json);

}  // namespace co2::doctor
