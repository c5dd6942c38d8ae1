#pragma once

#include <co2/checkpoint.h>
#include <co2/synchronizer.h>
#include <co2/trace.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "train/config.h"
#include "train/progress.h"
#include "train/run_files.h"
#include "train/summary.h"

namespace co2::train {

/// What people see of a run while it goes on: the progress line, messages, metrics.jsonl. Only rank 0 has one.
class Reporter {
 public:
  Reporter(std::FILE* screen, const TaskWords& words) : words_(words), screen_(screen, words) {}

  void message(const std::string& line) { screen_.message(line); }
  /// Says if lines are missing after which it was to go on. Throws DataError.
  void begin_metrics(const std::filesystem::path& path, std::optional<std::int64_t> go_on_after);
  /// How many lines there are. They are on disk when it returns, unless it says that there is no room.
  std::int64_t sync_metrics();
  /// Throws DataError if some could not be written to the end.
  void finish_metrics();
  /// Says once where checkpoints are, and every time that one could not be made.
  void saved(const SaveReport& report);

  /// The first line, and what differs from what was asked for.
  void describe(const RunResult& run, const TrainConfig& config, int workers);

  /// The newest figures of training: a mean loss up to `last_step`, and a throughput.
  void loss(double loss, std::int64_t last_step, double units_per_second);
  /// Says once if the network, or what exchanges cost, is too much for the longest round that is allowed.
  void pace(const Pace& pace);
  /// Says once if workers train with another rate than the one that was asked for.
  void rate_factor(double factor, double learning_rate);
  /// Says once if progress was left out of exchanges, and in how many.
  void left_out(double exchanges, std::int64_t last_step);

  /// How far the run is.
  struct Point {
    std::int64_t step = 0;
    std::int64_t steps = 0;
    double wall_seconds = 0;
    double training_seconds = 0;  ///< without evaluations and the final exchange
    double learning_rate = 0;
    int local_steps = 0;
    Wire wire = Wire::kPlain;
    std::int64_t clipped = 0;  ///< exchanges of which the clip took something
    Overlap communication = {};
  };
  /// A line of metrics.jsonl, and the progress line. `evaluation` is empty unless the model was evaluated here.
  void record(const Point& point, const Evaluation& evaluation);
  /// Training is over: ends the progress line.
  void finish(const Point& point);

 private:
  void show(const Point& point);
  void tell_of_metrics();

  const TaskWords words_;
  Progress screen_;
  std::optional<MetricsFile> metrics_;
  Metrics latest_{.train_loss = RunResult::kUnknown};
  std::vector<double> latest_metrics_;  // of the last evaluation
  bool finished_ = false;
  bool warned_of_metrics_ = false;  // until there is room again
  bool warned_of_loss_ = false;
  bool warned_of_bound_ = false;
  bool warned_of_left_out_ = false;
  bool told_of_rate_ = false;
  bool told_of_checkpoints_ = false;
};

}  // namespace co2::train
