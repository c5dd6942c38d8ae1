#pragma once

#include <co2/cluster.h>

#include <cstdio>
#include <functional>
#include <string>

#include "train/config.h"
#include "train/summary.h"

namespace co2::train {

/// What the program around a run provides.
struct RunHooks {
  /// True once this worker was asked to stop. All workers then stop after the same step, and save what there is.
  std::function<bool()> stop_wished{};
  /// The text of config.json for the configuration as it was resolved; without it that file is left alone.
  std::function<std::string(const TrainConfig&)> config_text{};
  /// Whoever started this worker has taken config.out for this run (lock_run_folder()); otherwise rank 0 does.
  bool folder_is_taken = false;
  /// Where rank 0 shows progress.
  std::FILE* screen = stderr;
};

/// Trains, as all workers of `cluster` together: each calls this with the same configuration. Rank 0 writes into
/// config.out, in which no earlier run may be unless it goes on with it: config.json, metrics.jsonl (a line per control
/// period and per evaluation), trace.json (all workers' timelines, for Perfetto), summary.json, and model/.
///
/// A run that was complete before is left as it is (RunResult::was_complete).
///
/// Throws OptionError, DataError (also if only another worker has a problem with its data, or with a result that can't
/// be written; the other results then are), CommError.
RunResult run(const TrainConfig& config, const Cluster& cluster, const RunHooks& hooks = {});

}  // namespace co2::train
