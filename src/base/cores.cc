#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <thread>

namespace co2 {

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

bool pin_to(const std::vector<int>& cores) noexcept {
  Mask mask;
  for (const int core : cores) CPU_SET_S(core, sizeof mask.bytes, mask.set());
  return sched_setaffinity(0, sizeof mask.bytes, mask.set()) == 0;
}

}  // namespace co2
