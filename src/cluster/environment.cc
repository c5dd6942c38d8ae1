#include "cluster/environment.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <regex>

namespace co2 {

namespace {

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(const std::string& name) const {
    auto value = lookup_(name);
    if (value && value->empty()) return std::nullopt;  // exported but blank: as good as unset
    return value;
  }
  std::optional<int> number(const std::string& name, int lowest, int highest) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int result = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, result);
    if (error != std::errc() || stop != end || result < lowest || result > highest) {
      throw ClusterError(fmt::format("{} = '{}' is not a whole number from {} to {}", name, *value, lowest, highest));
    }
    return result;
  }
  int required(const std::string& name, int lowest, int highest, const std::string& why) const {
    if (const auto value = number(name, lowest, highest)) return *value;
    throw ClusterError(
        fmt::format("{} is not set, but {}: set it, or start the workers with torchrun, mpirun, srun or "
                    "co2 launch",
                    name, why));
  }

 private:
  const Lookup& lookup_;
};

constexpr int kMany = std::numeric_limits<int>::max();

/// The variables in which one launcher tells a worker its place.
struct Names {
  std::string launcher, rank, size, local_rank, local_size;
};
const Names kTorch{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
const Names kMpi{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                 "OMPI_COMM_WORLD_LOCAL_SIZE"};
// srun sets the STEP variables; a batch script that runs a program without srun has only SLURM_NTASKS, and is alone.
const Names kSlurm{"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"};

bool mentions(const Variables& variables, const Names& names) {
  return variables.text(names.size).has_value() ||
         (names.launcher != "slurm" && variables.text(names.rank).has_value());
}

/// Slurm tells every node the counts of all: "2(x3),1" are three nodes of two tasks and one of one.
std::optional<int> slurm_local_size(const Variables& variables, const std::string& name) {
  const auto counts = variables.text(name);
  const auto node = variables.number("SLURM_NODEID", 0, kMany);
  return counts && node ? std::optional<int>(slurm_tasks_on_node(*counts, *node)) : std::nullopt;
}

void read_place(const Variables& variables, const Names& names, Placement& placement) {
  Rendezvous& r = placement.rendezvous;
  r.rank = variables.required(names.rank, 0, kMany, fmt::format("{} is", names.size));
  r.size = variables.required(names.size, 1, kMany, fmt::format("{} is", names.rank));
  if (r.rank >= r.size) {
    throw ClusterError(fmt::format("{} = {} contradicts {} = {}: ranks go from 0 to {}", names.rank, r.rank, names.size,
                                   r.size, r.size - 1));
  }
  const auto local_rank = variables.number(names.local_rank, 0, kMany);
  const auto local_size = names.launcher == "slurm" ? slurm_local_size(variables, names.local_size)
                                                    : variables.number(names.local_size, 1, kMany);
  placement.local_rank = local_rank.value_or(0);
  placement.local_size = local_size.value_or(placement.local_rank + 1);
  if (placement.local_rank >= placement.local_size) {
    throw ClusterError(fmt::format("{} = {} contradicts {} = {}", names.local_rank, placement.local_rank,
                                   names.local_size, placement.local_size));
  }
  if (placement.local_size > r.size) {
    throw ClusterError(
        fmt::format("{} = {} contradicts {} = {}", names.local_size, placement.local_size, names.size, r.size));
  }
}

/// Two launchers at once are fine as long as they say the same (torchrun under srun: one task, many workers, is not
/// compared because the inner one's variables are complete by themselves).
void check_agreement(const Variables& variables, const Names& chosen, const Rendezvous& r) {
  for (const Names& other : {kMpi}) {
    if (other.launcher == chosen.launcher || !mentions(variables, other)) continue;
    const auto rank = variables.number(other.rank, 0, kMany);
    const auto size = variables.number(other.size, 1, kMany);
    if (size && *size == r.size && rank && *rank != r.rank) {
      throw ClusterError(
          fmt::format("{} = {} contradicts {} = {}: unset one of them", chosen.rank, r.rank, other.rank, *rank));
    }
    if (size && *size != r.size && *size != 1) {
      throw ClusterError(
          fmt::format("{} = {} contradicts {} = {}: unset one of them", chosen.size, r.size, other.size, *size));
    }
  }
}

/// A port that all workers of one job derive alike and other jobs on the host probably do not.
int port_from(const std::string& job) {
  constexpr int kFirst = 20000;
  constexpr int kCount = 10000;
  std::uint32_t hash = 2166136261U;  // FNV-1a: the same on every machine, unlike std::hash
  for (const unsigned char c : job) hash = (hash ^ c) * 16777619U;
  return kFirst + static_cast<int>(hash % kCount);
}

void read_rendezvous(const Variables& variables, const ClusterOptions& options, Placement& placement) {
  Rendezvous& r = placement.rendezvous;
  const bool one_host = placement.local_size == r.size;
  const bool slurm = placement.launcher == "slurm";
  const bool derived = slurm || placement.launcher == "mpirun";

  r.host = options.host;
  if (r.host.empty()) r.host = variables.text("MASTER_ADDR").value_or("");
  if (r.host.empty() && slurm) {
    if (const auto nodes = variables.text("SLURM_STEP_NODELIST")) r.host = first_slurm_host(*nodes);
  }
  if (r.host.empty() && derived && one_host) r.host = "127.0.0.1";
  if (r.host.empty()) {
    throw ClusterError(
        fmt::format("MASTER_ADDR is not set, but there are {} workers: set it to the host of rank 0", r.size));
  }

  r.port = options.port;
  if (r.port == 0) r.port = variables.number("MASTER_PORT", 1, 65535).value_or(0);
  if (r.port == 0 && derived) {
    const auto job = variables.text(slurm ? "SLURM_JOB_ID" : "PMIX_NAMESPACE");
    if (job) r.port = port_from(*job + variables.text("SLURM_STEP_ID").value_or(""));
  }
  if (r.port == 0) {
    throw ClusterError(
        fmt::format("MASTER_PORT is not set, but there are {} workers: set it to a free port on {}", r.size, r.host));
  }

  r.store_exists = variables.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  r.generation = variables.text("TORCHELASTIC_RESTART_COUNT").value_or("0");
  if (r.rank == 0) r.listen_fd = variables.number("CO2_MASTER_LISTEN_FD", 3, kMany).value_or(-1);
  r.interface = options.interface;
  if (r.interface.empty()) r.interface = variables.text("GLOO_SOCKET_IFNAME").value_or("");
  r.rendezvous_timeout = options.rendezvous_timeout;
  r.collective_timeout = options.collective_timeout;
}

void check(const ClusterOptions& options) {
  if (options.port < 0 || options.port > 65535) {
    throw OptionError(fmt::format("port = {} is not allowed: it must be 1 to 65535", options.port));
  }
  const auto positive = [](std::string_view name, std::chrono::seconds value) {
    if (value.count() > 0) return;
    throw OptionError(fmt::format("{} = {} s is not allowed: it must be at least 1 s", name, value.count()));
  };
  positive("rendezvous_timeout", options.rendezvous_timeout);
  positive("collective_timeout", options.collective_timeout);
}

}  // namespace

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::string detect_launcher(const Lookup& lookup) {
  const Variables variables(lookup);
  if (mentions(variables, kTorch)) {
    if (variables.text("CO2_LAUNCHER")) return "co2";
    return variables.text("TORCHELASTIC_RUN_ID") ? "torchrun" : "environment";
  }
  if (mentions(variables, kMpi)) return kMpi.launcher;
  if (mentions(variables, kSlurm)) return kSlurm.launcher;
  return "alone";
}

Placement read_placement(const ClusterOptions& options, const Lookup& lookup) {
  check(options);
  const Variables variables(lookup);
  Placement placement;
  placement.launcher = detect_launcher(lookup);
  if (placement.launcher == "alone") return placement;
  const Names& names = placement.launcher == "mpirun" ? kMpi : placement.launcher == "slurm" ? kSlurm : kTorch;
  read_place(variables, names, placement);
  check_agreement(variables, names, placement.rendezvous);
  if (placement.rendezvous.size > 1) read_rendezvous(variables, options, placement);
  return placement;
}

std::string first_slurm_host(const std::string& list) {
  const auto bracket = list.find('[');
  const auto comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const auto end = list.find_first_of(",-]", bracket);
  if (end == std::string::npos) throw ClusterError(fmt::format("SLURM_STEP_NODELIST = '{}' is cut off", list));
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

int slurm_tasks_on_node(const std::string& counts, int node) {
  static const std::regex entry(R"((\d{1,9})(?:\(x(\d{1,9})\))?(?:,|$))");
  std::int64_t nodes = 0;
  auto rest = counts.begin();
  for (std::smatch match; std::regex_search(rest, counts.end(), match, entry, std::regex_constants::match_continuous);
       rest = match[0].second) {
    nodes += match[2].matched ? std::stoi(match[2]) : 1;
    if (node < nodes) return std::stoi(match[1]);
  }
  throw ClusterError(
      fmt::format("SLURM_STEP_TASKS_PER_NODE = '{}' has no number of tasks for SLURM_NODEID = {}", counts, node));
}

}  // namespace co2
