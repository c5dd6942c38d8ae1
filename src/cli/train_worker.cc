#include "cli/train_worker.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <csignal>

#include "cli/job.h"
#include "cli/stop_signal.h"
#include "train/loop.h"
#include "train/summary.h"

namespace co2::cli {

int run_train_worker(const train::TrainConfig& config, bool json) {
  const StopSignal stop;
  train::RunHooks hooks;
  hooks.stop_wished = [&stop] { return stop.requested().load(); };
  try {
    const Cluster cluster = Cluster::from_environment(config.cluster);
    share_the_machine(config, cluster);
    const train::RunResult result = train::run(config, cluster, hooks);
    if (cluster.rank() == 0) fmt::print("{}", json ? train::summary_json(result) : train::format_summary(result));
    if (!result.interrupted) return 0;
    // The signal may have reached another worker only: they stop together all the same.
    return 128 + (stop.signal() != 0 ? stop.signal() : SIGINT);
  } catch (const Error& error) {
    if (stop.signal() == 0) throw;
    fmt::print(stderr, "co2: stopped: {}\n", error.what());
    return 128 + stop.signal();
  }
}

}  // namespace co2::cli
