#pragma once

#include <ATen/core/Tensor.h>
#include <co2/state.h>

#include <cstdint>
#include <filesystem>
#include <string>

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

/// A workload: a model, its data and its loss. The training loop knows nothing else about it but its TaskType. Each
/// worker has one.
///
/// Thread safety: used by one thread.
class Task {
 public:
  virtual ~Task() = default;

  /// The same initial parameters on every worker that has the same configuration.
  virtual torch::nn::Module& model() = 0;

  /// Forward pass on this worker's next training batch: the mean loss, ready for backward().
  virtual at::Tensor next_loss() = 0;

  /// Sums over this worker's share of the fixed validation data. Called without gradients.
  struct Validation {
    double loss_sum = 0;
    double count = 0;
  };
  virtual Validation validate() = 0;

  /// Writes the model for use outside of co2 into an existing folder.
  virtual void export_model(const std::filesystem::path& folder) = 0;

  /// Begins with weights that are in a folder, such as export_model() writes. Throws DataError.
  virtual void import_model(const std::filesystem::path& folder) = 0;

  /// Something to look at that shows what was learned, as valid UTF-8; may be empty.
  virtual std::string sample() = 0;

  virtual DataDescription data() const = 0;

  /// Shows where in its data this worker is, and whatever else the batches to come depend on.
  virtual void visit(StateVisitor& visitor) = 0;
};

}  // namespace co2::train
