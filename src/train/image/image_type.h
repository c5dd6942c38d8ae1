#pragma once

#include "train/task_type.h"

namespace co2::train {

TaskType image_type();

}  // namespace co2::train
