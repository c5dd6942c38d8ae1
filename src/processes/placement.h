#pragma once

#include <string>
#include <vector>

namespace co2::processes {

/// Where one of several workers on this machine runs.
struct CoreShare {
  std::vector<int> cores;  ///< the cores that it may use
  int threads = 1;         ///< the computing threads that fit them
};

/// What the processor is called, "AMD EPYC"; where the kernel does not tell, its architecture.
std::string processor_name();

/// Workers when the user names no number: one per usable core, at most four.
int default_workers();

/// Divides `cores` among `workers`. With cores to spare, everybody gets equally many neighbouring ones: a worker with
/// more would only wait for the others. With more workers than cores, they take turns, one thread each. Without `pin`
/// every worker may use all cores. `threads` above zero overrides the number of threads.
std::vector<CoreShare> place(int workers, const std::vector<int>& cores, int threads, bool pin);

/// Computing threads for one of `workers` on this machine that another launcher started: its share of the `machine`'s
/// cores, or all of its `usable` ones if those are fewer, because then the launcher has divided them already.
int joined_threads(int workers, int usable, int machine);

/// "0-3,8"
std::string format_cores(const std::vector<int>& cores);

}  // namespace co2::processes
