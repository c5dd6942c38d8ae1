#include "doctor/machine.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/cores.h"
#include "processes/placement.h"
#include "train/run_files.h"

namespace co2::doctor {

namespace {

std::string first_line(const char* path) {
  std::string line;
  std::ifstream stream(path);
  std::getline(stream, line);
  return line;
}

/// "MemAvailable:  123 kB" in a file of such lines, in bytes.
std::optional<double> kilobytes(const char* path, std::string_view name) {
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream rest(line.substr(name.size()));
    double value = 0;
    if (rest >> value) return 1024 * value;
  }
  return std::nullopt;
}

std::optional<double> number_in(const char* path) {
  double value = 0;
  std::ifstream stream(path);
  return stream >> value ? std::optional<double>(value) : std::nullopt;
}

/// What is left of the container's limit; 0: there is none. A full container has one all the same.
double container_memory() {
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  return limit && used ? std::max(*limit - *used, 1.0) : 0;
}

}  // namespace

WorkerFacts look_around(int rank, const std::string& co2_version) {
  const std::string build = at::show_config();
  WorkerFacts facts;
  facts.rank = rank;
  facts.host = train::host_name();
  facts.machine = first_line("/proc/sys/kernel/random/boot_id");
  if (facts.machine.empty()) facts.machine = facts.host;
  facts.processor = processes::processor_name();
  facts.co2_version = co2_version;
  facts.torch_version = build_setting(build, "TORCH_VERSION");
  facts.blas = build_setting(build, "BLAS_INFO");
  facts.cores = usable_cores();
  facts.core_quota = parse_core_quota(first_line("/sys/fs/cgroup/cpu.max"));
  facts.threads = at::get_num_threads();
  facts.memory_available = kilobytes("/proc/meminfo", "MemAvailable:").value_or(0);
  facts.container_memory = container_memory();
  return facts;
}

double own_peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double files = kilobytes("/proc/self/status", "RssFile:").value_or(0);
  return std::max(1024.0 * static_cast<double>(usage.ru_maxrss) - files, 0.0);
}

double parse_core_quota(std::string_view text) {
  std::istringstream words{std::string(text)};
  double quota = 0;
  double period = 0;
  return words >> quota >> period && quota > 0 && period > 0 ? quota / period : 0;
}

std::string build_setting(std::string_view description, std::string_view name) {
  const std::string key = std::string(name) + "=";
  std::size_t begin = description.find(key);
  // A longer name may end in this one.
  while (begin != std::string_view::npos && begin > 0 && description[begin - 1] != ' ') {
    begin = description.find(key, begin + 1);
  }
  if (begin == std::string_view::npos) return {};
  begin += key.size();
  return std::string(description.substr(begin, description.find_first_of(",\n", begin) - begin));
}

}  // namespace co2::doctor
