#pragma once

#include <co2/cluster.h>
#include <co2/error.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "train/config.h"
#include "train/loop.h"

namespace co2::test {

/// What came of a run on several workers.
struct Outcome {
  std::vector<train::RunResult> results;
  std::vector<std::string> errors;  ///< by rank, empty where there was none
};

/// All workers as threads of this process; what they show goes into `screen`.
inline Outcome run_workers(int workers, const train::TrainConfig& config, const std::filesystem::path& screen,
                           const std::function<bool(int)>& stop_wished = {}) {
  Outcome outcome;
  outcome.results.resize(static_cast<std::size_t>(workers));
  outcome.errors.resize(static_cast<std::size_t>(workers));
  std::FILE* file = std::fopen(screen.c_str(), "w");
  auto clusters = Cluster::in_process(workers);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      train::RunHooks hooks;
      hooks.screen = file;
      hooks.config_text = [](const train::TrainConfig& resolved) {
        return "{\"steps\":" + std::to_string(resolved.steps) + "}\n";
      };
      if (stop_wished) hooks.stop_wished = [&, rank] { return stop_wished(rank); };
      try {
        outcome.results[index] = train::run(config, clusters[index], hooks);
      } catch (const Error& error) {
        outcome.errors[index] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::fclose(file);
  return outcome;
}

}  // namespace co2::test
