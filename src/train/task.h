#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace co2::train {

struct TrainConfig;

/// What a task may know about the worker it runs on, and the way to talk to the user and the other workers.
struct TaskContext {
  int rank = 0;
  int size = 1;
  std::function<bool(bool)> agree;              ///< true on all workers if given true on all; a collective
  std::function<void(const std::string&)> say;  ///< a line for the user
  std::function<bool()> cancelled;              ///< a wish to stop
};

/// The data that a run used, for its summary.
struct DataDescription {
  std::string name;
  std::string sha256;
  std::int64_t bytes = 0;
};

/// A workload: a model, its data and its loss. The training loop knows nothing else about it. Each worker has one.
///
/// Thread safety: used by one thread.
class Task {
 public:
  virtual ~Task() = default;

  /// The same initial parameters on every worker that has the same configuration.
  virtual torch::nn::Module& model() = 0;

  /// Forward pass on this worker's next training batch: the mean loss, ready for backward().
  virtual at::Tensor next_loss() = 0;

  /// What the throughput counts ("tokens"), and how many of them one next_loss() works on.
  virtual std::string unit() const = 0;
  virtual std::int64_t units_per_batch() const = 0;

  /// Sums over this worker's share of the fixed validation data. Called without gradients.
  struct Validation {
    double loss_sum = 0;
    double count = 0;
  };
  virtual Validation validate() = 0;

  /// Writes the model for use outside of co2 into an existing folder.
  virtual void export_model(const std::filesystem::path& folder) = 0;

  /// Something to look at that shows what was learned, as valid UTF-8; may be empty.
  virtual std::string sample() = 0;

  virtual DataDescription data() const = 0;
};

/// The names that `co2 train TASK` knows.
const std::vector<std::string>& task_names();

/// Checks the options that only this task understands (its presets); throws OptionError.
void validate_task(const TrainConfig& config);

/// Builds the task of config.task; throws OptionError with the closest name if there is none. A collective: it may
/// agree with the other workers on the data.
std::unique_ptr<Task> make_task(const TrainConfig& config, const TaskContext& context);

}  // namespace co2::train
