#pragma once

#include <co2/options.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/folder_lock.h"
#include "train/task_type.h"

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
  std::vector<double> metrics{};     ///< the same for the task's own, one for each of TaskWords::metrics, or none
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

/// metrics.jsonl: whole lines, in the file as soon as they are known. A full disk is no reason to lose a run: what
/// could not be written waits, and goes out with the next line for which there is room. Nor is a
/// file that somebody removes: it is a problem() to the end.
class MetricsFile {
 public:
  /// Begins a new file, or goes on with that of an earlier life of the run, after as many lines as there were when it
  /// was saved: what came after them will be written again. Throws DataError.
  MetricsFile(const std::filesystem::path& path, TaskWords words, std::optional<std::int64_t> go_on_after);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void append(const Metrics& metrics);
  /// Everything so far is on disk when it returns, unless there is a problem().
  void sync();
  std::int64_t lines() const { return lines_; }
  /// Of those after which it was to go on, how many were not there.
  std::int64_t missing() const { return missing_; }
  /// Why the last attempt to write did not succeed; empty if nothing waits.
  const std::string& problem() const { return problem_; }

 private:
  void write_what_waits();

  const std::filesystem::path path_;
  const TaskWords words_;
  std::int64_t lines_ = 0;
  std::int64_t missing_ = 0;
  int file_ = -1;
  std::string unwritten_;
  std::string problem_;
};

/// One Trace Event document out of one per worker.
std::string merged_trace(const std::vector<std::string>& documents);

inline constexpr auto kConfigFile = "config.json";
inline constexpr auto kNextConfigFile = "config.next.json";
inline constexpr auto kSummaryFile = "summary.json";

/// A new folder for results: runs/<what>-<local time>, with a number after it if that is taken. Throws DataError.
std::filesystem::path claim_default_folder(const std::string& what);
/// The same with <task>-<model>-<strategy>.
std::filesystem::path claim_default_folder(const TrainConfig& config);

/// Makes the folder if need be, and takes it for one run: until its end nobody else can begin or go on with one there.
/// Throws DataError.
FolderLock lock_run_folder(const std::filesystem::path& folder);

/// Begins a run in a folder: it can be written, and config.json has `config_text`; an empty one leaves that file alone.
/// Throws DataError, also if an earlier run is in it: nothing of that is ever removed.
void begin_run_folder(const std::filesystem::path& folder, const std::string& config_text);
/// The same for one that goes on with the run that is there: `config_text` waits in a file of its own until that has
/// worked, so that options that do not fit are forgotten with the attempt.
void resume_run_folder(const std::filesystem::path& folder, const std::string& config_text);
/// It has worked: what waits becomes config.json, if something does. Throws DataError.
void accept_next_config(const std::filesystem::path& folder);

/// Of this process.
double peak_resident_megabytes();
std::string host_name();

}  // namespace co2::train
