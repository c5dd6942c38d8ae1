#pragma once

#include <memory>

#include "train/task_type.h"

namespace co2::train {

std::unique_ptr<Task> make_image_task(const TrainConfig& config, const TaskContext& context);

/// TaskType::export_weights.
void export_image_weights(const TrainConfig& config, const CheckpointWeights& weights,
                          const std::filesystem::path& folder);

}  // namespace co2::train
