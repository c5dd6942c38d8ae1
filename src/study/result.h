#pragma once

#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "study/link_model.h"
#include "study/plan.h"
#include "train/task_type.h"

namespace co2::study {

/// A training loss, smoothed as the lab does it, and the steps of each worker after which it was reached.
struct CurvePoint {
  double step = 0;
  double loss = 0;
};

/// What became of a run: a line of results.jsonl.
struct Result {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  std::string key;
  nlohmann::ordered_json config;
  std::string failure;  ///< why there are no figures, with the end of the log; empty: it is done

  std::map<std::string, double> metrics;  ///< validation_loss, train_loss, and what the task adds; NaN: not finite
  double training_seconds = kUnknown;     ///< of all workers, one after the other, on one core
  double wall_seconds = kUnknown;         ///< of its process, from start to end
  double bytes_per_step = kUnknown;       ///< that a worker sends
  nlohmann::ordered_json recipe;          ///< what the strategy's options were in the end
  std::int64_t parameters = 0;
  nlohmann::ordered_json data;    ///< name, sha256 and bytes
  std::vector<CurvePoint> curve;  ///< at most kCurvePoints

  std::string version;  ///< of co2, with the commit
  std::string host;
  std::string processor;
  std::string finished;  ///< UTC, as in 2025-01-31T12:00:00Z

  static constexpr std::size_t kCurvePoints = 100;

  bool done() const { return failure.empty(); }
  double metric(const std::string& name) const;  ///< NaN: it diverged. Throws DataError if there is none of that name
  double workers() const { return config.at("workers").get<double>(); }
  double steps() const { return config.at("steps").get<double>(); }
  double samples_per_step() const;
  Pattern pattern() const;
};

nlohmann::ordered_json to_json(const Result& result);
/// Throws nlohmann::json::exception if something is missing or of another kind.
Result result_from_json(const nlohmann::ordered_json& json);

/// What a run of such a task is measured by: the names in Result::metrics.
std::vector<std::string> metric_names(const train::TaskWords& words);

/// The figures that a run left in its folder. Throws DataError if they are not all there.
Result read_result(const std::filesystem::path& folder, const train::TaskWords& words);

/// Where and when a result comes from, as of now.
void sign(Result& result);

}  // namespace co2::study
