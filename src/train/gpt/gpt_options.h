#pragma once

#include <string>

#include "train/gpt/gpt_config.h"

namespace co2::train {

struct TrainConfig;

/// What only this task has in a TrainConfig; gpt_type.cc gives each field its flag, range and help.
struct GptOptions {
  /// gutenberg, sotu, anarchism, gcide, synthetic, auto, or a path to a text file or folder
  std::string corpus = "auto";
  int context = 0;                 ///< tokens per sample; 0: the preset's own
  double validation_share = 0.05;  ///< share of the corpus that is held out, at its end
  int sample_bytes = 200;          ///< length of the text sample at the end
};

/// The model's shape: its preset, with the context that was asked for. Throws OptionError.
GptConfig gpt_config(const TrainConfig& config);

}  // namespace co2::train
