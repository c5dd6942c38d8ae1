#pragma once

#include <memory>

#include "train/task_type.h"

namespace co2::train {

std::unique_ptr<Task> make_gpt_task(const TrainConfig& config, const TaskContext& context);

}  // namespace co2::train
