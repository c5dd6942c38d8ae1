#pragma once

#include <memory>

#include "train/task.h"

namespace co2::train {

/// Byte-level language modelling: config.model is a preset of gpt_config.h, config.corpus a text of data/corpus.h.
std::unique_ptr<Task> make_gpt_task(const TrainConfig& config, const TaskContext& context);
void validate_gpt_task(const TrainConfig& config);

}  // namespace co2::train
