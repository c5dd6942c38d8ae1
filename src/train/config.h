#pragma once

#include <co2/cluster.h>
#include <co2/options.h>

#include <any>
#include <cstdint>
#include <filesystem>
#include <string>

namespace co2::train {

/// The first of task_types().
std::string default_task();

/// Everything that defines a training run. src/cli/train_option_table.cc gives each field its flag, its key in a
/// configuration file, its range and its help; those of `of_task` get them from the task.
struct TrainConfig {
  std::string task = default_task();

  // Workload: the model and its data.
  std::string model;      ///< one of the task's presets; empty: its first
  int batch = 8;          ///< samples per worker and backward pass
  int eval_batches = 16;  ///< batches per validation, over all workers; 0: all validation data
  std::any of_task;       ///< the task's own options, through task_options(); empty: their defaults

  // Inner optimizer and schedule.
  std::string optimizer = "adamw";  ///< adamw, adam, sgd
  double learning_rate = 0;         ///< as for ddp; 0: the model's own
  double weight_decay = 0.1;
  double beta1 = 0.9;  ///< Adam's; SGD's momentum
  double beta2 = 0.95;
  double gradient_clip = 1.0;       ///< global norm; 0 is off
  std::string schedule = "cosine";  ///< constant, linear, cosine
  double warmup = 0.05;             ///< share of the steps
  double final_rate = 0.1;          ///< at the last step, as a share of learning_rate

  // The run.
  std::int64_t steps = 800;
  std::int64_t eval_every = 100;  ///< 0: only at the end
  std::uint64_t seed = 1;
  std::filesystem::path out;             ///< empty: runs/<task>-<model>-<strategy>-<time>
  std::string checkpoint_every = "10m";  ///< steps, or a time (parse_every()); 0: never
  int keep = 2;                          ///< checkpoints
  std::filesystem::path init_from;       ///< a folder with weights to begin with; empty: random ones
  bool resume = false;  ///< go on from the newest checkpoint in `out`; no option of its own: `co2 train --resume`

  // Between workers.
  Options sync;
  ClusterOptions cluster;

  // On this machine; only used when co2 starts the workers itself.
  int workers = 0;               ///< 0: one per usable core, at most 4
  bool virtual_workers = false;  ///< they are threads of one process (train/virtual_workers.h)
  int threads = 0;               ///< per worker; 0: usable cores / workers, at least 1
  bool pin = true;
};

/// The options of the task whose own struct T is: only that task knows T.
template <class T>
T& task_options(TrainConfig& config) {
  if (!std::any_cast<T>(&config.of_task)) config.of_task.emplace<T>();
  return *std::any_cast<T>(&config.of_task);
}
template <class T>
const T& task_options(const TrainConfig& config) {
  static const T defaults;
  const T* set = std::any_cast<T>(&config.of_task);
  return set ? *set : defaults;
}

}  // namespace co2::train
