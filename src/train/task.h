#pragma once

#include <ATen/core/Tensor.h>
#include <co2/state.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/task_type.h"

namespace torch::nn {
class Module;
}

namespace co2::train {

/// The data that a run used, for its summary.
struct DataDescription {
  std::string name;
  std::string sha256;
  std::int64_t bytes = 0;
};

/// Said instead of what Task::sample() shows, by a run that has diverged.
inline constexpr const char* kNoSample = "there is no sample, as what the model computes is not finite";

/// A workload: a model, its data and its loss. The training loop knows nothing else about it but its TaskType. Each
/// worker has one.
///
/// Thread safety: used by one thread.
class Task {
 public:
  virtual ~Task() = default;

  virtual torch::nn::Module& model() = 0;

  /// What the model's parameters begin with that have no memory yet (release_memory()); rank 0 is asked. By itself a
  /// model has its values.
  virtual FirstValues first_values() { return {}; }

  /// Forward pass on this worker's next training batch: the mean loss, ready for backward().
  virtual at::Tensor next_loss() = 0;

  /// Sums over this worker's share of the fixed validation data. Called without gradients.
  struct Validation {
    double loss_sum = 0;
    double count = 0;
    std::vector<double> metrics = {};  ///< one for each of TaskWords::metrics
  };
  virtual Validation validate() = 0;

  /// Writes the model for use outside of co2 into an existing folder, on rank 0. With ZeRO 3 the model itself is not
  /// all here, but `show` has it, once.
  virtual void export_model(const std::filesystem::path& folder, const ShowParameters& show) = 0;

  /// Begins with weights that are in a folder, such as export_model() writes: before first_values(), on rank 0. Throws
  /// DataError.
  virtual void import_model(const std::filesystem::path& folder) = 0;

  /// Something to look at that shows what was learned: valid UTF-8, which may be empty, and perhaps pictures in
  /// `folder`, the run's. Rank 0 is asked; with ZeRO 3 all workers are, the others without a folder. Throws DataError.
  virtual std::string sample(const std::filesystem::path& folder) = 0;

  virtual DataDescription data() const = 0;

  /// Shows where in its data this worker is, and whatever else the batches to come depend on.
  virtual void visit(StateVisitor& visitor) = 0;
};

}  // namespace co2::train
