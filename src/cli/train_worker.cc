#include "cli/train_worker.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <csignal>
#include <memory>
#include <optional>

#include "base/files.h"
#include "cli/job.h"
#include "cli/same_options.h"
#include "processes/screen.h"
#include "processes/stop_signal.h"
#include "train/earlier_run.h"
#include "train/loop.h"
#include "train/run_files.h"
#include "train/summary.h"
#include "train/virtual_workers.h"

namespace co2::cli {

namespace {

/// Trains as one of several workers, or as all of them, and prints what there is to print. False: the run was stopped.
bool trained(const train::TrainConfig& config, const std::optional<Cluster>& cluster, const train::RunHooks& hooks,
             bool json) {
  if (cluster) share_the_machine(config, *cluster);
  const train::RunResult result =
      cluster ? train::run(config, *cluster, hooks) : train::run_virtual_workers(config, hooks);
  const bool speaks = !cluster || cluster->rank() == 0;
  if (speaks && result.was_complete) tell_that_it_is_complete(config, json);
  if (speaks && !result.was_complete) {
    processes::show(stdout, json ? train::summary_json(result) : train::format_summary(result));
  }
  return !result.interrupted;
}

/// Workers stop together, and all of them say why, though the signal may have reached one of them only. Of several
/// signals the one with the highest number. A collective.
int signal_of_any(Communicator& workers, int mine) {
  const at::Tensor signal = at::full({1}, mine, at::kLong);
  workers.all_reduce(signal, ReduceOp::kMax)->wait();
  return signal.item<int>();
}

}  // namespace

int run_train_worker(const train::TrainConfig& config, bool json, const std::string& config_text) {
  std::signal(SIGPIPE, SIG_IGN);  // a `| tee` that died must not take the run along
  std::optional<Cluster> cluster;
  std::shared_ptr<Communicator> workers;
  if (!config.virtual_workers) {
    cluster = Cluster::from_environment(config.cluster);
    workers = cluster->communicator("workers");
    check_same_options(*workers, config);
  }
  const processes::StopSignal stop;  // after the rendezvous, in which nobody would look at it
  train::RunHooks hooks;
  hooks.stop_wished = [&stop] { return stop.requested().load(); };
  if (!config_text.empty()) hooks.config_text = [&](const train::TrainConfig&) { return config_text; };
  hooks.folder_is_taken = config_text.empty();
  try {
    if (trained(config, cluster, hooks, json)) return 0;
    return 128 + (workers ? signal_of_any(*workers, stop.signal()) : stop.signal());
  } catch (const Error& error) {
    if (stop.signal() == 0) throw;
    processes::show(stderr, fmt::format("co2: stopped: {}\n", error.what()));
    return 128 + stop.signal();
  }
}

int tell_that_it_is_complete(const train::TrainConfig& config, bool json) {
  processes::show(stderr, train::complete_text(config.out, config.steps));
  if (json) processes::show(stdout, read_file(config.out / train::kSummaryFile));
  return 0;
}

}  // namespace co2::cli
