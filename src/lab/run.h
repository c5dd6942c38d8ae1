#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lab/network.h"
#include "processes/signal_queue.h"
#include "processes/worker_environment.h"

namespace co2::lab {

/// One training: the same command on every host, which finds its place in the environment (RANK and the like).
struct RunSpec {
  std::vector<std::string> command;
  processes::Environment environment;  ///< for all; execute() adds what differs
  std::filesystem::path folder;        ///< of the results; the workers' logs go there too
  int threads = 0;                     ///< per worker; 0: its share of the cores
  bool pin = true;
  std::chrono::seconds time_limit{3600};
};

/// The rates changed while it ran.
struct RateChange {
  double wall_seconds = 0;  ///< on the clock of the run's metrics
  std::size_t phase = 0;    ///< the one that began
};

struct RunEnd {
  enum class Kind { kDone, kFailed, kStopped };
  Kind kind = Kind::kDone;
  std::string why{};   ///< of a failure, for people: several lines
  int signal = 0;      ///< that stopped it
  double seconds = 0;  ///< from the start of the workers to the end of the last
  std::vector<RateChange> changes{};
};

/// Runs it to its end on `network`, whose rates follow the scenario. When it returns, no process is left in the
/// network. `tick` is called about ten times a second. The first signal to stop, from `signals`, ends the run.
RunEnd execute(const RunSpec& spec, Network& network, const Scenario& scenario, const processes::SignalQueue& signals,
               const std::function<void()>& tick);

}  // namespace co2::lab
