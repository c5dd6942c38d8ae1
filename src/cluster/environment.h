#pragma once

#include <co2/cluster.h>

#include <functional>
#include <optional>
#include <string>

#include "comm/c10d_group.h"

namespace co2 {

/// Looks up an environment variable; a parameter so that tests need not change the process's own.
using Lookup = std::function<std::optional<std::string>(const std::string&)>;
std::optional<std::string> process_environment(const std::string& name);

/// A worker's place in its job, as its launcher told it.
struct Placement {
  std::string launcher;  ///< see Cluster::launcher()
  int local_rank = 0;
  int local_size = 1;
  Rendezvous rendezvous;  ///< rank and size; the rest only if there are several workers
};

/// Which launcher's variables are present: "co2", "torchrun", "environment" (RANK and WORLD_SIZE by hand), "mpirun",
/// "slurm", or "alone".
std::string detect_launcher(const Lookup& lookup = process_environment);

/// Reads the launcher's variables and checks that they are complete and agree. Explicit options win over variables.
/// Throws ClusterError that names the variable.
Placement read_placement(const ClusterOptions& options, const Lookup& lookup = process_environment);

/// The first host of a Slurm node list such as "node[03-05,9],other".
std::string first_slurm_host(const std::string& list);

/// The tasks on the given node, by its number in the step, from counts such as "2(x3),1".
int slurm_tasks_on_node(const std::string& counts, int node);

/// The address of this host from which `host` is reached.
std::string local_address_towards(const std::string& host);

}  // namespace co2
