#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace co2::train {

/// One line of metrics.jsonl. Figures about communication are rank 0's, since the beginning of the run.
struct Metrics {
  std::int64_t step = 0;  ///< steps taken
  double wall_seconds = 0;
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

/// runs/<task>-<model>-<strategy>-<local time>.
std::filesystem::path default_folder(const std::string& task, const std::string& model, const std::string& strategy);

/// What this process may use of the machine: the cores it may run on ("0,2-3"), its peak resident memory, its host.
std::string usable_cores();
double peak_resident_megabytes();
std::string host_name();

}  // namespace co2::train
