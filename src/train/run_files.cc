#include "train/run_files.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

namespace co2::train {

using Json = nlohmann::ordered_json;

MetricsFile::MetricsFile(const std::filesystem::path& path, std::string unit)
    : path_(path), unit_(std::move(unit)), file_(std::fopen(path.c_str(), "we")) {
  if (!file_) throw DataError(fmt::format("can't write {}: {}", path.string(), std::strerror(errno)));
}

void MetricsFile::append(const Metrics& metrics) {
  const Json json = {{"step", metrics.step},
                     {"wall_seconds", metrics.wall_seconds},
                     {"train_loss", metrics.train_loss},
                     {"train_loss_step", metrics.train_loss_step},
                     {"validation_loss", metrics.validation_loss},
                     {unit_ + "_per_second", metrics.units_per_second},
                     {"learning_rate", metrics.learning_rate},
                     {"overlap", metrics.overlap},
                     {"exposed_seconds", metrics.exposed_seconds},
                     {"transfer_seconds", metrics.transfer_seconds},
                     {"bytes", metrics.bytes},
                     {"local_steps", metrics.local_steps}};
  const auto line = json.dump() + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0) {
    throw DataError(fmt::format("can't write {}: {}", path_.string(), std::strerror(errno)));
  }
}

std::string merged_trace(const std::vector<std::string>& documents) {
  Json merged = {{"traceEvents", Json::array()}};
  for (const auto& document : documents) {
    auto part = Json::parse(document);
    for (auto& [key, value] : part.items()) {
      if (key != "traceEvents") {
        merged[key] = value;
        continue;
      }
      for (auto& event : value) merged["traceEvents"].push_back(std::move(event));
    }
  }
  return merged.dump() + "\n";
}

std::filesystem::path default_folder(const std::string& task, const std::string& model, const std::string& strategy) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local);
  return std::filesystem::path("runs") / fmt::format("{}-{}-{}-{}", task, model, strategy, text.data());
}

std::string usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "";
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &set)) continue;
    const int first = core;
    while (core + 1 < CPU_SETSIZE && CPU_ISSET(core + 1, &set)) ++core;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (core > first) text += fmt::format("-{}", core);
  }
  return text;
}

double peak_resident_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace co2::train
