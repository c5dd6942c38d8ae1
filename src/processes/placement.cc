#include "processes/placement.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstddef>
#include <fstream>

#include "base/cores.h"

namespace co2::processes {

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

}  // namespace co2::processes
