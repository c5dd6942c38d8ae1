#pragma once

#include <string>
#include <vector>

#include "doctor/expectation.h"
#include "doctor/facts.h"
#include "doctor/reach.h"

namespace co2::doctor {

enum class Level { kOk, kWarn, kFail };

/// One thing that was looked at.
struct Check {
  std::string name;
  Level level = Level::kOk;
  std::string finding;  ///< one line
  std::string advice;   ///< what to do; empty if nothing
};

// Rules on given facts, which are never empty and in the order of ranks. Workers with the same `machine` share its
// cores and memory; those that also have the same `host` share a container's limits, if it has any.
Check check_threads(const std::vector<WorkerFacts>& workers);
Check check_cores(const std::vector<WorkerFacts>& workers);
Check check_blas(const std::vector<WorkerFacts>& workers);
Check check_interface(const std::vector<WorkerFacts>& workers, const NetworkFacts& network);
Check check_ports(const std::vector<WorkerFacts>& workers, const std::vector<Unreachable>& unreachable);
Check check_clocks(const std::vector<WorkerFacts>& workers, const std::vector<ClockOffset>& clocks);
Check check_versions(const std::vector<WorkerFacts>& workers);
Check check_speed(const std::vector<WorkerFacts>& workers);
/// `need`: of one worker.
Check check_memory(const std::vector<WorkerFacts>& workers, double need, const std::vector<std::string>& sizes = {});
/// The same before the model is made, from the least that it can need: FAIL, because making it would end badly.
Check check_room(const std::vector<WorkerFacts>& workers, double least);

/// Whether every worker and every machine has a core more than computing threads, which the network stack can then use.
bool core_to_spare(const std::vector<WorkerFacts>& workers);

bool any_failed(const std::vector<Check>& checks);

}  // namespace co2::doctor
