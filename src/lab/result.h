#pragma once

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lab/link_check.h"
#include "lab/run.h"
#include "train/task_type.h"

namespace co2::lab {

/// A smoothed loss and the training time at which it was reached.
struct CurvePoint {
  double seconds = 0;
  double loss = 0;
  double step = 0;  ///< the last one that it is about
};

/// What a run wrote in its folder. NaN or nothing: it does not tell.
struct Figures {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  double units_per_second = kUnknown;        ///< over all workers
  double training_seconds = kUnknown;        ///< without evaluations and the final exchange
  double final_exchange_seconds = kUnknown;  ///< after the last step: all workers take the average
  long steps = 0;
  double transfer_seconds = kUnknown;
  double exposed_seconds = kUnknown;
  double bytes_per_worker = kUnknown;
  std::optional<int> local_steps;  ///< in force at the end; none: it exchanges otherwise, or not at all
  std::optional<int> fragments;
  double train_loss = kUnknown;  ///< of the last 5 % of the steps
  double validation_loss = kUnknown;
  std::vector<double> metrics{};  ///< one for each of TaskWords::metrics
  std::string unit{};
  std::string data{};  ///< the name of what it learned from
  long parameters = 0;
  std::vector<CurvePoint> curve{};  ///< each point the mean of the 5 % of the steps before it, as the final loss is

  double overlap() const;             ///< 1 - exposed / transfer; NaN without a transfer
  double per_step(double sum) const;  ///< a sum over the run, per step
};

/// Reads summary.json and metrics.jsonl. Throws DataError. The task's words say what things are called there.
Figures read_figures(const std::filesystem::path& folder, const train::TaskWords& words);

/// When the smoothed loss was first at or below `target`; nothing if never.
std::optional<double> seconds_to(const std::vector<CurvePoint>& curve, double target);

/// The lowest smoothed loss; NaN for an empty curve.
double lowest(const std::vector<CurvePoint>& curve);

/// A run that took place.
struct RunRecord {
  std::size_t scenario = 0;
  std::size_t item = 0;
  int repeat = 0;
  std::filesystem::path folder;
  RunEnd end;
  std::vector<LinkCheck> links;
  std::optional<Figures> figures;  ///< if it is done
};

}  // namespace co2::lab
