#pragma once

#include "train/config.h"

namespace co2::cli {

/// Trains in this process, as one of config.workers, and on rank 0 prints the summary: a table, or JSON on stdout.
/// Returns the exit code: 128 + signal if the run was stopped by one, after everything was saved.
int run_train_worker(const train::TrainConfig& config, bool json);

}  // namespace co2::cli
