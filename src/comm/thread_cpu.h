#pragma once

#include <string_view>

namespace co2 {

/// Processor time used so far by the threads of this process whose name contains `part`; 0 where the system does not
/// tell (no /proc).
double cpu_seconds_of_threads(std::string_view part);

/// Processor time used so far by the calling thread.
double cpu_seconds_of_this_thread();

}  // namespace co2
