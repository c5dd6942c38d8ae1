#include "doctor/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "base/human.h"
#include "lab/rate.h"
#include "processes/placement.h"

namespace co2::doctor {

namespace {

// Of multiply-adds in registers. Healthy libraries reach 0.7 and more. The oldest kernels can't reach more than half
// where the widest vectors take two cycles (Zen 4: 0.35 seen), and a quarter elsewhere.
constexpr double kSlowProduct = 0.5;
constexpr double kSlowLink = 0.25;   // of what the interface advertises
constexpr double kBusy = 0.7;        // of the time, from which on the processor is the limit and not the link
constexpr double kSkew = 1.0;        // seconds
constexpr double kStraggler = 1.25;  // times the fastest worker's step
constexpr double kTightMemory = 0.9;

using Workers = std::vector<WorkerFacts>;
using Machine = std::vector<const WorkerFacts*>;

std::vector<Machine> by_machine(const Workers& workers) {
  std::vector<Machine> machines;
  std::map<std::string, std::size_t> places;
  for (const WorkerFacts& worker : workers) {
    const auto [place, added] = places.try_emplace(worker.machine, machines.size());
    if (added) machines.emplace_back();
    machines[place->second].push_back(&worker);
  }
  return machines;
}

/// "rank 1 on node2"
std::string who(const WorkerFacts& worker) { return fmt::format("rank {} on {}", worker.rank, worker.host); }

/// Cores that the workers of a machine may use together; a container's limit may leave less of them.
double cores_of(const Machine& machine) {
  std::set<int> cores;
  std::map<std::string, double> quotas;  // by container, as far as host names tell them apart
  for (const WorkerFacts* worker : machine) {
    cores.insert(worker->cores.begin(), worker->cores.end());
    quotas[worker->host] = worker->core_quota;
  }
  double allowed = 0;
  for (const auto& [host, quota] : quotas) {
    if (quota <= 0) return static_cast<double>(cores.size());
    allowed += quota;
  }
  return std::min(allowed, static_cast<double>(cores.size()));
}

int threads_of(const Machine& machine) {
  int threads = 0;
  for (const WorkerFacts* worker : machine) threads += worker->threads;
  return threads;
}

bool oversubscribed(const Machine& machine) { return threads_of(machine) > cores_of(machine) + 1e-9; }

/// Memory that some workers share: a machine's, or what is left to a container.
struct Room {
  std::string owner;
  double available = 0;  // as the worker that sees least of it says
  int workers = 0;
  double share(double each) const { return each * workers / available; }

  void add(const std::string& whose, double bytes) {
    owner = whose;
    available = workers == 0 ? bytes : std::min(available, bytes);
    ++workers;
  }
};

/// All of which the system tells the size.
std::vector<Room> rooms(const Workers& workers) {
  std::vector<Room> result;
  for (const Machine& machine : by_machine(workers)) {
    const std::string& first = machine[0]->host;
    const bool one_host =
        std::all_of(machine.begin(), machine.end(), [&](const WorkerFacts* worker) { return worker->host == first; });
    Room whole;
    std::map<std::string, Room> containers;  // as far as host names tell them apart
    for (const WorkerFacts* worker : machine) {
      whole.add(one_host ? first : "the machine of " + first, worker->memory_available);
      if (worker->container_memory <= 0) continue;
      containers[worker->host].add("the container " + worker->host, worker->container_memory);
    }
    if (whole.available > 0) result.push_back(whole);
    for (const auto& [host, container] : containers) result.push_back(container);
  }
  return result;
}

/// The one that `each` for every worker fills most; nothing if no system told.
std::optional<Room> tightest(const Workers& workers, double each) {
  const auto all = rooms(workers);
  const auto worst = std::max_element(all.begin(), all.end(),
                                      [&](const Room& a, const Room& b) { return a.share(each) < b.share(each); });
  return worst == all.end() ? std::nullopt : std::optional(*worst);
}

std::string in_words(const Room& room, double each) {
  const std::string need = room.workers == 1 ? fmt::format("1 worker needs {}", human_bytes(each))
                                             : fmt::format("{} workers of {} need {}", room.workers, human_bytes(each),
                                                           human_bytes(room.workers * each));
  return fmt::format("{}, {} has {} available", need, room.owner, human_bytes(room.available));
}

/// The values of a field, each once, if there is more than one.
template <class Field>
std::vector<std::string> different(const Workers& workers, Field field) {
  std::set<std::string> values;
  for (const WorkerFacts& worker : workers) values.insert(worker.*field);
  if (values.size() < 2) return {};
  return {values.begin(), values.end()};
}

}  // namespace

Check check_threads(const Workers& workers) {
  for (const Machine& machine : by_machine(workers)) {
    if (!oversubscribed(machine)) continue;
    return {"threads", Level::kWarn,
            fmt::format("{}: {} workers compute with {} threads together, but may use {:.3g} cores", machine[0]->host,
                        machine.size(), threads_of(machine), cores_of(machine)),
            "set --threads (or OMP_NUM_THREADS) to cores / workers, or start fewer --workers"};
  }
  const Machine first = by_machine(workers)[0];
  return {"threads", Level::kOk,
          fmt::format("{} for {:.3g} cores on {}", threads_of(first), cores_of(first), first[0]->host), ""};
}

Check check_cores(const Workers& workers) {
  for (const Machine& machine : by_machine(workers)) {
    for (std::size_t i = 0; i < machine.size(); ++i) {
      for (std::size_t j = i + 1; j < machine.size(); ++j) {
        std::vector<int> shared;
        std::set_intersection(machine[i]->cores.begin(), machine[i]->cores.end(), machine[j]->cores.begin(),
                              machine[j]->cores.end(), std::back_inserter(shared));
        if (shared.empty()) continue;
        const bool crowded = static_cast<double>(machine.size()) > cores_of(machine);
        return {"cores", Level::kWarn,
                fmt::format("ranks {} and {} on {} may run on the same cores ({})", machine[i]->rank, machine[j]->rank,
                            machine[i]->host, processes::format_cores(shared)),
                crowded ? "start at most one worker per core"
                        : "bind each worker to cores of its own: co2 launch does (without --no-pin), mpirun --bind-to "
                          "core, srun --cpu-bind=cores, taskset"};
      }
    }
  }
  return {"cores", Level::kOk, workers.size() == 1 ? "one worker" : "every worker has cores of its own", ""};
}

Check check_blas(const Workers& workers) {
  const auto share = [](const WorkerFacts& w) {
    return w.multiply_add_flops > 0 ? w.product_flops / w.multiply_add_flops : 0;
  };
  const auto& slowest = *std::min_element(workers.begin(), workers.end(),
                                          [&](const auto& a, const auto& b) { return share(a) < share(b); });
  const std::string finding = fmt::format(
      "matrix product {:.3g} GFLOP/s, {:.0f} % of what the cores can do ({}, BLAS: {})", slowest.product_flops / 1e9,
      100 * share(slowest), who(slowest), slowest.blas.empty() ? "unknown" : slowest.blas);
  if (share(slowest) >= kSlowProduct) return {"blas", Level::kOk, finding, ""};
  for (const Machine& machine : by_machine(workers)) {
    // Threads that wait for each other's cores make any library slow.
    if (machine[0]->machine == slowest.machine && oversubscribed(machine)) {
      return {"blas", Level::kOk, finding + ": not judged, the threads compete for cores", ""};
    }
  }
  return {"blas", Level::kWarn, finding,
          "its kernels may be for another processor: set OPENBLAS_CORETYPE (SKYLAKEX, HASWELL, ZEN), unset MKL_CBWR "
          "and MKL_ENABLE_INSTRUCTIONS, or take PyTorch's own LibTorch"};
}

Check check_interface(const Workers& workers, const NetworkFacts& network) {
  const bool several = by_machine(workers).size() > 1;
  for (const WorkerFacts& worker : workers) {
    const Interface& own = worker.interface;
    const std::string name = own.name.empty() ? own.address : own.name;
    if (own.loopback && several) {
      return {"interface", Level::kWarn,
              fmt::format("{} uses the loopback ({}), which other hosts can't reach", who(worker), name),
              own.physical.empty() ? "name the interface that leads to the other hosts with --interface"
                                   : fmt::format("--interface {}", own.physical)};
    }
    if (own.bridge && !own.physical.empty()) {
      return {"interface", Level::kWarn,
              fmt::format("{} uses {} ({}), a bridge for containers", who(worker), name, own.address),
              fmt::format("--interface {}", own.physical)};
    }
  }
  const Transfer largest = network.transfers.empty() ? Transfer{} : network.transfers.back();
  const double measured = largest.bits_per_second;
  // The processor time of the whole model, against the time that it takes.
  const double busy = network.model_seconds > 0 ? network.model_cycles / network.model_seconds : 0;
  for (const WorkerFacts& worker : workers) {
    const double advertised = worker.interface.bits_per_second;
    if (!(measured > 0 && advertised > 0 && measured < kSlowLink * advertised && busy < kBusy)) continue;
    return {"interface", Level::kWarn,
            fmt::format("{} says that {} runs at {}, but an all-reduce gets {}", who(worker), worker.interface.name,
                        lab::format_rate(advertised), lab::format_rate(measured)),
            "look for a slower switch or cable between the hosts, other traffic, or another --interface"};
  }
  const Interface& first = workers[0].interface;
  return {"interface", Level::kOk,
          first.address.empty() ? "not needed by one worker"
                                : fmt::format("{} ({}) on {}", first.name.empty() ? "address" : first.name,
                                              first.address, workers[0].host),
          ""};
}

Check check_ports(const Workers& workers, const std::vector<Unreachable>& unreachable) {
  const auto pairs = workers.size() * (workers.size() - 1);
  if (unreachable.empty()) {
    return {"ports", Level::kOk, pairs == 0 ? "one worker" : fmt::format("all {} ways between workers work", pairs),
            ""};
  }
  const Unreachable& first = unreachable[0];
  const auto host = [&](int rank) { return workers[static_cast<std::size_t>(rank)].host; };
  return {
      "ports", Level::kFail,
      fmt::format("rank {} on {} can't reach rank {} on {} at {}: {} ({} of {} ways fail)", first.from,
                  host(first.from), first.to, host(first.to), first.address, first.why, unreachable.size(), pairs),
      "let the firewall pass TCP between the workers on all ports above 1024, or name the interface that they share "
      "(--interface, GLOO_SOCKET_IFNAME)"};
}

Check check_clocks(const Workers& workers, const std::vector<ClockOffset>& clocks) {
  double worst = 0;
  double error = 0;
  std::size_t rank = 0;
  for (const ClockOffset& clock : clocks) {
    const auto place = static_cast<std::size_t>(clock.rank);
    // Only what is beyond doubt counts.
    const double certain = std::max(std::abs(clock.seconds) - clock.error, 0.0);
    error = std::max(error, clock.error);
    if (certain > std::abs(worst)) worst = std::copysign(certain, clock.seconds), rank = place;
  }
  if (std::abs(worst) > kSkew) {
    return {"clocks", Level::kWarn,
            fmt::format("the clock of {} is {:.3g} s {} rank 0's", who(workers[rank]), std::abs(worst),
                        worst > 0 ? "ahead of" : "behind"),
            "run an NTP service (chrony, systemd-timesyncd): times in logs and traces can't be compared"};
  }
  return {"clocks", Level::kOk,
          by_machine(workers).size() == 1
              ? "one machine"
              : fmt::format("within {:.0f} ms of each other", 1e3 * (std::abs(worst) + error)),
          ""};
}

Check check_versions(const Workers& workers) {
  const char* same = "run the same build everywhere";
  if (const auto versions = different(workers, &WorkerFacts::co2_version); !versions.empty()) {
    return {"versions", Level::kWarn, fmt::format("different versions of co2: {}", fmt::join(versions, ", ")), same};
  }
  if (const auto versions = different(workers, &WorkerFacts::torch_version); !versions.empty()) {
    return {"versions", Level::kWarn, fmt::format("different versions of LibTorch: {}", fmt::join(versions, ", ")),
            same};
  }
  if (const auto models = different(workers, &WorkerFacts::processor); !models.empty()) {
    return {"versions", Level::kWarn, fmt::format("different processors: {}", fmt::join(models, "; ")),
            "the slowest one sets the pace of all: give it a smaller share, or leave it out"};
  }
  return {
      "versions", Level::kOk,
      fmt::format("co2 {}, LibTorch {}, {}", workers[0].co2_version, workers[0].torch_version, workers[0].processor),
      ""};
}

Check check_speed(const Workers& workers) {
  const auto [fastest, slowest] = std::minmax_element(
      workers.begin(), workers.end(), [](const auto& a, const auto& b) { return a.step.median < b.step.median; });
  const double ratio = fastest->step.median > 0 ? slowest->step.median / fastest->step.median : 1;
  if (ratio > kStraggler) {
    return {"stragglers", Level::kWarn,
            fmt::format("{} takes {:.2f} times as long for a step as rank {}", who(*slowest), ratio, fastest->rank),
            "everybody waits for it: look for other programs there, fewer cores or a lower clock"};
  }
  return {"stragglers", Level::kOk,
          fmt::format("none: the slowest worker takes {:.2f} times the fastest's time", ratio), ""};
}

Check check_memory(const Workers& workers, double need, const std::vector<std::string>& sizes) {
  const auto room = tightest(workers, need);
  if (!room) {
    return {"memory", Level::kOk, human_bytes(need) + " per worker; the system does not tell what it has", ""};
  }
  if (room->share(need) <= kTightMemory) return {"memory", Level::kOk, in_words(*room, need), ""};
  std::vector<std::string> flags = {"--model", "--batch"};
  flags.insert(flags.end(), sizes.begin(), sizes.end());
  const std::string last = flags.back();
  flags.pop_back();
  return {"memory", Level::kWarn, in_words(*room, need),
          fmt::format("start fewer workers there, or take a smaller {} or {}", fmt::join(flags, ", "), last)};
}

Check check_room(const Workers& workers, double least) {
  const auto room = tightest(workers, least);
  if (!room || room->share(least) <= 1) return {"memory", Level::kOk, "room for the model", ""};
  return {"memory", Level::kFail, fmt::format("the model does not fit: at the least {}", in_words(*room, least)),
          "take a smaller --model or fewer workers per host"};
}

bool core_to_spare(const Workers& workers) {
  const auto machines = by_machine(workers);
  return std::all_of(machines.begin(), machines.end(), [](const Machine& machine) {
    const bool each = std::all_of(machine.begin(), machine.end(), [](const WorkerFacts* worker) {
      return static_cast<int>(worker->cores.size()) > worker->threads;
    });
    return each && cores_of(machine) >= threads_of(machine) + 1;
  });
}

bool any_failed(const std::vector<Check>& checks) {
  return std::any_of(checks.begin(), checks.end(), [](const Check& check) { return check.level == Level::kFail; });
}

}  // namespace co2::doctor
