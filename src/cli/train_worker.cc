#include "cli/train_worker.h"

#include <ATen/Parallel.h>
#include <co2/error.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>

#include "cli/placement.h"
#include "cli/stop_signal.h"
#include "cluster/environment.h"
#include "train/loop.h"
#include "train/summary.h"

namespace co2::cli {

namespace {

/// LibTorch takes a thread per usable core. That is right for workers that are alone or bound to cores of their own;
/// srun may bind nobody, and then all workers of a machine would compete for all of it.
void share_the_machine(const train::TrainConfig& config, const Cluster& cluster) {
  if (config.threads > 0) {
    at::set_num_threads(config.threads);
  } else if (!process_environment("OMP_NUM_THREADS") && !process_environment("MKL_NUM_THREADS")) {
    at::set_num_threads(joined_threads(cluster.local_size(), static_cast<int>(usable_cores().size()),
                                       static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))));
  }
}

}  // namespace

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
