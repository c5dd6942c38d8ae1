#pragma once

#include <string>

#include "train/config.h"

namespace co2::cli {

/// Trains in this process, as one of config.workers or, if these are virtual, as all of them, and on rank 0 prints the
/// summary: a table, or JSON on stdout. `config_text` is for config.json; empty: it is there already, and the folder
/// is taken for this run by the process that started us. Returns the exit code: 128 + signal if the run was stopped by
/// one, after everything was saved.
int run_train_worker(const train::TrainConfig& config, bool json, const std::string& config_text);

/// Says that nothing is left to do for the run that is there; as JSON, the summary that it ended with. Returns the exit
/// code.
int tell_that_it_is_complete(const train::TrainConfig& config, bool json);

}  // namespace co2::cli
