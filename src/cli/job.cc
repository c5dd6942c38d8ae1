#include "cli/job.h"

#include <ATen/Parallel.h>
#include <co2/error.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/cores.h"
#include "processes/placement.h"

namespace co2::cli {

std::optional<Placement> settle_workers(train::TrainConfig& config, bool workers_given) {
  if (detect_launcher() == "alone") {
    if (config.workers == 0) config.workers = processes::default_workers();
    return std::nullopt;
  }
  Placement placement = read_placement(config.cluster);
  const int size = placement.rendezvous.size;
  if (workers_given && config.workers != size) {
    throw OptionError(fmt::format("workers = {} contradicts {}, which started {}: leave it out", config.workers,
                                  placement.launcher, size));
  }
  config.workers = size;
  return placement;
}

void share_the_machine(const train::TrainConfig& config, const Cluster& cluster) {
  if (config.threads > 0) {
    at::set_num_threads(config.threads);
  } else if (!process_environment("OMP_NUM_THREADS") && !process_environment("MKL_NUM_THREADS")) {
    at::set_num_threads(processes::joined_threads(cluster.local_size(), static_cast<int>(usable_cores().size()),
                                                  static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))));
  }
}

}  // namespace co2::cli
