#include "train/run_files.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/files.h"
#include "train/config.h"
#include "train/folders.h"
#include "train/task_type.h"

namespace co2::train {

using Json = nlohmann::ordered_json;

MetricsFile::MetricsFile(const std::filesystem::path& path, std::string unit)
    : path_(path), unit_(std::move(unit)), file_(std::fopen(path.c_str(), "we")) {
  if (!file_) throw DataError(fmt::format("can't write {}: {}", path.string(), std::strerror(errno)));
}

void MetricsFile::append(const Metrics& metrics) {
  const Json json = {{"step", metrics.step},
                     {"wall_seconds", metrics.wall_seconds},
                     {"training_seconds", metrics.training_seconds},
                     {"train_loss", metrics.train_loss},
                     {"train_loss_step", metrics.train_loss_step},
                     {"validation_loss", metrics.validation_loss},
                     {unit_ + "_per_second", metrics.units_per_second},
                     {"learning_rate", metrics.learning_rate},
                     {"overlap", metrics.overlap},
                     {"exposed_seconds", metrics.exposed_seconds},
                     {"transfer_seconds", metrics.transfer_seconds},
                     {"bytes", metrics.bytes},
                     {"local_steps", metrics.local_steps},
                     {"wire", name(metrics.wire)},
                     {"clipped_exchanges", metrics.clipped}};
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

std::filesystem::path claim_default_folder(const std::string& what) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local);
  return claim_folder(std::filesystem::path("runs") / fmt::format("{}-{}", what, text.data()));
}

std::filesystem::path claim_default_folder(const TrainConfig& config) {
  return claim_default_folder(fmt::format("{}-{}-{}", config.task, model_of(config), name(config.sync.strategy)));
}

void begin_run_folder(const std::filesystem::path& folder, const std::string& config_text) {
  ensure_writable(folder);
  std::error_code error;
  const auto remove = [&](const char* file) {
    std::filesystem::remove(folder / file, error);
    if (error) throw DataError(fmt::format("can't remove {}: {}", (folder / file).string(), error.message()));
  };
  for (const char* file : {"summary.json", "trace.json", "metrics.jsonl"}) remove(file);
  for (const char* file : {"model/model.safetensors", "model/config.json"}) remove(file);
  std::filesystem::remove(folder / "model", error);  // stays if somebody has put more into it
  if (!config_text.empty()) write_atomically(folder / "config.json", config_text);
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
