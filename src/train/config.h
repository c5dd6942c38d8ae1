#pragma once

#include <co2/cluster.h>
#include <co2/options.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace co2::train {

/// Everything that defines a training run. src/cli/train_option_table.cc gives each field its flag, its key in a
/// configuration file, its range and its help.
struct TrainConfig {
  std::string task = "gpt";

  // Workload: the model and its data.
  std::string model = "nano";  ///< preset: nano, tiny, mini, small, medium, large, xl, 7b
  std::string corpus =
      "auto";       ///< gutenberg, sotu, anarchism, gcide, synthetic, auto, or a path to a text file or folder
  int context = 0;  ///< tokens per sample; 0: the preset's own
  int batch = 8;    ///< samples per worker and backward pass
  double validation_share = 0.05;  ///< share of the corpus that is held out, at its end
  int eval_batches = 16;           ///< batches per validation, over all workers

  // Inner optimizer and schedule.
  std::string optimizer = "adamw";  ///< adamw, adam, sgd
  double learning_rate = 2e-3;
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
  std::filesystem::path out;  ///< empty: runs/<task>-<model>-<strategy>-<time>
  int sample_bytes = 200;     ///< length of the text sample at the end

  // Between workers.
  Options sync;
  ClusterOptions cluster;

  // On this machine; only used when co2 starts the workers itself.
  int workers = 0;  ///< 0: one per usable core, at most 4
  int threads = 0;  ///< per worker; 0: usable cores / workers, at least 1
  bool pin = true;
};

}  // namespace co2::train
