#include "comm/thread_cpu.h"

#include <time.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace co2 {

double cpu_seconds_of_threads(std::string_view part) {
  double total = 0;
  std::error_code error;
  // A thread may end while we look at it: what can't be read counts as nothing.
  for (std::filesystem::directory_iterator task("/proc/self/task", error), end; !error && task != end;
       task.increment(error)) {
    std::string name;
    std::ifstream(task->path() / "comm") >> name;
    if (name.find(part) == std::string::npos) continue;
    double nanoseconds = 0;
    std::ifstream(task->path() / "schedstat") >> nanoseconds;
    total += nanoseconds * 1e-9;
  }
  return total;
}

double cpu_seconds_of_this_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace co2
