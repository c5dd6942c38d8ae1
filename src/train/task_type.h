#pragma once

#include <co2/parameters.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace co2 {
struct ModelShape;
}

namespace co2::train {

class CheckpointWeights;

/// Shows a model's parameters, whole, one after the other in the order of registration (Synchronizer::each_parameter).
using ShowParameters = std::function<void(const ParameterVisitor&)>;

class Task;
struct DataSet;
struct TrainConfig;
struct TrainOption;

/// What a task may know about the worker it runs on, and the way to talk to the user and the other workers.
struct TaskContext {
  int rank = 0;
  int size = 1;
  std::function<bool(bool)> agree;              ///< true on all workers if given true on all; a collective
  std::function<void(const std::string&)> say;  ///< a line for the user, as long as the task lives
  std::function<bool()> cancelled;              ///< a wish to stop
};

/// What a task calls its things, on the screen and in result files.
struct TaskWords {
  std::string unit;           ///< what the throughput counts: "tokens"
  std::string loss = "loss";  ///< what next_loss() and validate() give
  std::string data = "data";  ///< what it learns from: "corpus"
  /// Means over the validation data that validate() gives besides the loss: "accuracy".
  std::vector<std::string> metrics{};
  std::string sample_title{};  ///< stands above Task::sample(): "The model writes:"
};

/// A size in which a task's model comes.
struct Preset {
  std::string name;
  std::string about;  ///< one line for the help
  double adam_rate = 2e-3;
  double sgd_rate = 0.1;
};

/// All that the rest of the program knows about a kind of task before one is made. A new task is a folder beside gpt
/// with a function that returns one of these, a line in task_types.cc, and its name in CMakeLists.txt.
struct TaskType {
  std::string name;
  std::string summary;  ///< one line for the help: "a GPT that reads and writes bytes"
  std::string sample;   ///< what one of a batch is: "a window of text"
  std::string example;  ///< a command line
  TaskWords words;
  std::vector<Preset> presets;  ///< the first is the default
  bool has_peers = false;       ///< the programs in peers/ train it too

  /// Its own options, which have fields of its own struct in TrainConfig::of_task.
  std::vector<TrainOption> (*options)();
  /// What it takes by itself of the options that all tasks have; null: what a TrainConfig has.
  void (*set_defaults)(TrainConfig&) = nullptr;
  /// Checks the preset and its own options and fills in what they leave open; throws OptionError.
  void (*settle)(TrainConfig&);
  /// The following take what has been checked.
  std::int64_t (*units_per_sample)(const TrainConfig&);
  /// The parameters of the model without making one: the largest do not fit into this machine.
  ModelShape (*shape)(const TrainConfig&);
  /// What can be known about the data before any worker starts; throws DataError.
  void (*check_data)(const TrainConfig&);
  /// Brings the data to this machine, for workers that will have no network to do it, and makes sure that they take
  /// just that. Throws DataError.
  void (*fetch_data)(TrainConfig&, const TaskContext&);
  /// A collective: it may agree with the other workers on the data.
  std::unique_ptr<Task> (*make)(const TrainConfig&, const TaskContext&);
  /// Writes weights from a checkpoint for use outside of co2, like Task::export_model(); null: it has no such form.
  void (*export_weights)(const TrainConfig&, const CheckpointWeights&, const std::filesystem::path& folder) = nullptr;
  /// What it can learn from that comes in public packages; null: there is nothing.
  const std::vector<DataSet>& (*data_sets)() = nullptr;
};

/// The tasks that there are. The first is the one that `co2 train` takes by itself.
const std::vector<TaskType>& task_types();

/// Throws OptionError with the closest name if there is none.
const TaskType& task_type(const std::string& name);

/// The names that `co2 train TASK` knows.
std::vector<std::string> task_names();

std::vector<std::string> preset_names(const TaskType& type);

/// What a run of that task is by itself. Throws OptionError if there is no such task.
TrainConfig defaults_of(const std::string& task);

/// config.model, or the task's first preset if that is empty.
std::string model_of(const TrainConfig& config);

/// The configuration with the learning rate that the model or the optimizer has by itself, if none is set.
TrainConfig with_rate(TrainConfig config);

/// The configuration with everything filled in that the task leaves open (TaskType::settle); throws OptionError.
TrainConfig settled(TrainConfig config);

}  // namespace co2::train
