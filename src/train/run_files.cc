#include "train/run_files.h"

#include <co2/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "base/descriptor.h"
#include "base/files.h"
#include "train/config.h"
#include "train/folders.h"
#include "train/task_type.h"

namespace co2::train {

using Json = nlohmann::ordered_json;

namespace {

/// The first `count` lines, or as many of them as there are: the last one may have been cut off when the machine went
/// down.
std::vector<std::string> first_lines(const std::filesystem::path& path, std::int64_t count) {
  std::vector<std::string> kept;
  if (!std::filesystem::exists(path)) return kept;
  std::istringstream lines(read_file(path));
  for (std::string line; std::ssize(kept) < count && std::getline(lines, line);) {
    if (!Json::accept(line)) break;
    kept.push_back(line);
  }
  return kept;
}

std::string cannot_write(const std::filesystem::path& path) {
  return fmt::format("can't write {}: {}", path.string(), std::strerror(errno));
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path, TaskWords words, std::optional<std::int64_t> go_on_after)
    : path_(path), words_(std::move(words)) {
  if (go_on_after) {
    const std::vector<std::string> kept = first_lines(path, *go_on_after);
    lines_ = std::ssize(kept);
    missing_ = *go_on_after - lines_;
    write_atomically(path, [&](const auto& append) {
      for (const std::string& line : kept) append(line + "\n");
    });
  }
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (go_on_after ? 0 : O_TRUNC), 0666);
  if (file_ < 0) throw DataError(cannot_write(path));
}

MetricsFile::~MetricsFile() { close(file_); }

void MetricsFile::write_what_waits() {
  problem_.clear();
  while (!unwritten_.empty()) {
    const ssize_t written = write(file_, unwritten_.data(), unwritten_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      problem_ = cannot_write(path_);
      return;
    }
    unwritten_.erase(0, static_cast<std::size_t>(written));
  }
  if (!is_at(file_, path_)) {
    problem_ = fmt::format("{} was removed or moved while the run was writing to it", path_.string());
  }
}

void MetricsFile::sync() {
  write_what_waits();
  if (fdatasync(file_) != 0) problem_ = cannot_write(path_);
}

void MetricsFile::append(const Metrics& metrics) {
  Json json = {{"step", metrics.step},
               {"wall_seconds", metrics.wall_seconds},
               {"training_seconds", metrics.training_seconds},
               {"train_loss", metrics.train_loss},
               {"train_loss_step", metrics.train_loss_step},
               {"validation_loss", metrics.validation_loss},
               {words_.unit + "_per_second", metrics.units_per_second},
               {"learning_rate", metrics.learning_rate},
               {"overlap", metrics.overlap},
               {"exposed_seconds", metrics.exposed_seconds},
               {"transfer_seconds", metrics.transfer_seconds},
               {"bytes", metrics.bytes},
               {"local_steps", metrics.local_steps},
               {"wire", name(metrics.wire)},
               {"clipped_exchanges", metrics.clipped}};
  // On lines about an evaluation; a task without any has no such key.
  for (std::size_t i = 0; i < metrics.metrics.size(); ++i) json["metrics"][words_.metrics[i]] = metrics.metrics[i];
  unwritten_ += json.dump() + "\n";
  ++lines_;
  write_what_waits();
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

FolderLock lock_run_folder(const std::filesystem::path& folder) {
  constexpr std::chrono::seconds kToEnd{5};  // for workers that have been killed, or whose run has just ended
  ensure_writable(folder);
  return {folder, fmt::format("a run is at work in {}", folder.string()),
          "wait for its end, or stop it (it saves, and --resume then goes on), or choose another folder", kToEnd};
}

void begin_run_folder(const std::filesystem::path& folder, const std::string& config_text) {
  for (const char* left : {"metrics.jsonl", "checkpoints", kSummaryFile}) {
    std::error_code error;
    if (!std::filesystem::exists(folder / left, error)) continue;
    throw DataError(
        fmt::format("{} has a run in it ({}): go on with it (co2 train --resume {}), remove the folder, or "
                    "choose another one",
                    folder.string(), left, folder.string()));
  }
  ensure_writable(folder);
  if (!config_text.empty()) write_atomically(folder / kConfigFile, config_text);
}

void resume_run_folder(const std::filesystem::path& folder, const std::string& config_text) {
  ensure_writable(folder);
  if (!config_text.empty()) write_atomically(folder / kNextConfigFile, config_text);
}

void accept_next_config(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder / kNextConfigFile, error)) return;
  std::filesystem::rename(folder / kNextConfigFile, folder / kConfigFile, error);
  if (!error) return;
  throw DataError(fmt::format("{}: {} can't take the place of {}: {}", folder.string(), kNextConfigFile, kConfigFile,
                              error.message()));
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
