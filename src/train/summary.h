#pragma once

#include <co2/checkpoint.h>
#include <co2/options.h>
#include <co2/synchronizer.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "options/recipe.h"
#include "train/task.h"

namespace co2::train {

/// What one worker saw of the run.
struct WorkerFigures {
  double transfer_seconds = 0;  ///< time with a transfer under way; like all of this, without the final exchange
  double exposed_seconds = 0;   ///< time that training waited for one
  double compute_seconds = 0;
  double outer_seconds = 0;  ///< launch and apply passes
  std::int64_t bytes_sent = 0;
  std::int64_t left_out = 0;  ///< exchanges of a fragment that it had no part in (Core::left_out())
  MemoryUse memory = {};      ///< of tensors, by what they are for
  double peak_megabytes = 0;  ///< peak resident memory of its process, in units of 1e6 bytes
  int threads = 0;
  std::string cores{};  ///< that it may run on, such as "0,2-3"
  std::string host{};
};

/// Those of this life of a run, on this worker.
struct CheckpointFigures {
  std::int64_t made = 0;
  std::int64_t failed = 0;
  std::int64_t bytes = 0;      ///< of all of them together
  std::int64_t largest = 0;    ///< bytes of one
  double stalled_seconds = 0;  ///< that training stood still for them
  std::filesystem::path newest;

  void add(const SaveReport& report);
};

/// What a validation found: means over the data of all workers.
struct Evaluation {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  double loss = kUnknown;
  std::vector<double> metrics = {};  ///< one for each of TaskWords::metrics; none if it is not known
};

/// The result of a run, the same on all workers except for `out` and `sample`, which only rank 0 has.
struct RunResult {
  static constexpr double kUnknown = Evaluation::kUnknown;

  std::string task;
  std::string model;
  TaskWords words;
  std::int64_t parameters = 0;
  Recipe recipe;
  Pace pace;  ///< at the end of training
  Clipping clipping;
  double rate_factor = 1;  ///< at the end of training, times the learning rate that was asked for
  DataDescription data;
  std::string launcher;

  double train_loss_before = kUnknown;  ///< of the first step, mean over workers
  double train_loss = kUnknown;         ///< mean over workers and the last 5 % of the steps
  Evaluation validation_before;
  Evaluation validation;  ///< of the final model

  std::int64_t steps = 0;
  std::int64_t units = 0;             ///< over all workers
  double training_seconds = 0;        ///< of all steps, without evaluations
  double final_exchange_seconds = 0;  ///< of finish(), after which all workers have the same model
  double wall_seconds = 0;            ///< from the first worker's start to the last evaluation
  bool interrupted = false;
  bool was_complete = false;  ///< before it began: nothing was done, and nothing else here is known

  std::vector<WorkerFigures> workers;  ///< by rank
  CheckpointFigures checkpoints;
  std::filesystem::path out;
  std::string sample;
  std::int64_t left_out() const;  ///< over all workers

  double units_per_second() const { return training_seconds > 0 ? static_cast<double>(units) / training_seconds : 0; }
  double transfer_seconds() const;  ///< mean over workers
  double exposed_seconds() const;   ///< mean over workers
  double overlap() const;           ///< 1 - exposed / transfer, 0..1; 1 if nothing was transferred
  double bytes_per_worker() const;  ///< mean over workers
};

/// By name; an empty object if there are none, null for what is not known.
nlohmann::ordered_json metrics_json(const TaskWords& words, const std::vector<double>& values);

/// Its fields, in bytes.
nlohmann::ordered_json memory_json(const MemoryUse& use);

/// The contents of summary.json.
std::string summary_json(const RunResult& result);

/// The same for people: aligned columns, human units, and the sample. Ends with a line end.
std::string format_summary(const RunResult& result);

/// One worker's figures as a line of JSON, and back: how they travel between workers.
std::string to_text(const WorkerFigures& figures);
WorkerFigures figures_from_text(const std::string& text);

}  // namespace co2::train
