#include "processes/placement.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <thread>

namespace co2::processes {

namespace {
// A fixed-size mask keeps pin_to() free of allocation; machines beyond 4096 logical cores don't exist.
constexpr std::size_t kMaxCores = 4096;
struct Mask {
  alignas(cpu_set_t) unsigned char bytes[CPU_ALLOC_SIZE(kMaxCores)] = {};
  cpu_set_t* set() noexcept { return reinterpret_cast<cpu_set_t*>(bytes); }
};
}  // namespace

std::vector<int> usable_cores() {
  Mask mask;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof mask.bytes, mask.set()) == 0) {
    for (std::size_t core = 0; core < kMaxCores; ++core) {
      if (CPU_ISSET_S(core, sizeof mask.bytes, mask.set())) cores.push_back(static_cast<int>(core));
    }
  }
  if (cores.empty()) {
    const int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    for (int core = 0; core < count; ++core) cores.push_back(core);
  }
  return cores;
}

std::string processor_name() {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname system{};
  return uname(&system) == 0 ? system.machine : "";
}

int default_workers() { return std::min(4, static_cast<int>(usable_cores().size())); }

std::vector<CoreShare> place(int workers, const std::vector<int>& cores, int threads, bool pin) {
  const int available = static_cast<int>(cores.size());
  const int each = std::max(1, available / workers);
  std::vector<CoreShare> shares;
  for (int worker = 0; worker < workers; ++worker) {
    CoreShare share;
    share.threads = threads > 0 ? threads : each;
    if (!pin) {
      share.cores = cores;
    } else {
      const int first = workers <= available ? worker * each : worker % available;
      share.cores.assign(cores.begin() + first, cores.begin() + first + each);
    }
    shares.push_back(std::move(share));
  }
  return shares;
}

int joined_threads(int workers, int usable, int machine) { return std::min(usable, std::max(1, machine / workers)); }

std::string format_cores(const std::vector<int>& cores) {
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", cores[i]) : fmt::format("{}-{}", cores[i], cores[last]);
    i = last + 1;
  }
  return text;
}

bool pin_to(const std::vector<int>& cores) noexcept {
  Mask mask;
  for (const int core : cores) CPU_SET_S(core, sizeof mask.bytes, mask.set());
  return sched_setaffinity(0, sizeof mask.bytes, mask.set()) == 0;
}

}  // namespace co2::processes
