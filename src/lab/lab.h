#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/plan.h"
#include "lab/rate.h"
#include "train/task_type.h"

namespace co2::lab {

/// What `co2 lab` was asked to do.
struct LabOptions {
  int workers = 2;
  std::vector<Scenario> scenarios;
  std::vector<Item> items;         ///< strategies, then peers
  train::TaskWords words{};        ///< of the task that all of them train; run_lab() fills it in
  std::vector<std::string> flags;  ///< of co2 train, for all items
  int repeats = 3;
  std::optional<double> target_loss;
  std::chrono::seconds time_limit{3600};  ///< of one run
  std::filesystem::path out;         ///< empty: a fresh runs/lab-<time>, made when the other options turned out well
  std::filesystem::path json;        ///< empty: lab.json in `out`
  std::filesystem::path svg;         ///< empty: lab.svg in `out`
  std::vector<std::string> command;  ///< that started us, for the record
  std::string version;
};

/// Runs everything, prints the tables on stdout and progress on stderr, writes the files. Returns the exit code: 0, 1
/// if a run failed, 128 + signal if it was stopped, also while it prepares.
///
/// Throws OptionError, ClusterError (no namespaces here), DataError.
///
/// Thread safety: call it from a process with a single thread, which it takes out of the machine's network.
int run_lab(LabOptions options);

}  // namespace co2::lab
