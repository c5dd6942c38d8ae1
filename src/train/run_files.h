#pragma once

#include <co2/options.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace co2::train {

struct TrainConfig;

/// One line of metrics.jsonl. Figures about communication are rank 0's, since the beginning of the run.
struct Metrics {
  std::int64_t step = 0;  ///< steps taken
  double wall_seconds = 0;
  double training_seconds = 0;       ///< without evaluations and the final exchange
  double train_loss = 0;             ///< mean over workers and the newest control period whose sum has arrived
  std::int64_t train_loss_step = 0;  ///< the last step of that period
  double validation_loss = 0;        ///< NaN (null in the file) unless this line is about an evaluation
  double units_per_second = 0;       ///< over all workers
  double learning_rate = 0;
  double overlap = 0;
  double exposed_seconds = 0;
  double transfer_seconds = 0;
  std::int64_t bytes = 0;
  int local_steps = 0;
  Wire wire = Wire::kPlain;
  std::int64_t clipped = 0;  ///< exchanges so far of which the clip took something
};

/// metrics.jsonl: whole lines, on disk as soon as they are known.
class MetricsFile {
 public:
  /// Begins a new file. Throws DataError.
  MetricsFile(const std::filesystem::path& path, std::string unit);
  void append(const Metrics& metrics);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::string unit_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// One Trace Event document out of one per worker.
std::string merged_trace(const std::vector<std::string>& documents);

/// A new folder for results: runs/<what>-<local time>, with a number after it if that is taken. Throws DataError.
std::filesystem::path claim_default_folder(const std::string& what);
/// The same with <task>-<model>-<strategy>.
std::filesystem::path claim_default_folder(const TrainConfig& config);

/// Begins a run in a folder: it can be written, what an earlier run left there is removed (our files, nothing else),
/// and config.json has `config_text`; an empty one leaves that file alone. Throws DataError.
void begin_run_folder(const std::filesystem::path& folder, const std::string& config_text);

/// Of this process.
double peak_resident_megabytes();
std::string host_name();

}  // namespace co2::train
