#pragma once

#include "train/config.h"
#include "train/loop.h"
#include "train/summary.h"

namespace co2::train {

/// Trains with config.workers workers that are threads of this process: what real workers learn, without a network and
/// for the price of the arithmetic. They take turns on the cores that the process may use, with config.threads
/// computing threads each (0: one). Returns what rank 0 has. Throws what the first worker to fail throws; the others
/// end with it.
RunResult run_virtual_workers(const TrainConfig& config, const RunHooks& hooks);

}  // namespace co2::train
