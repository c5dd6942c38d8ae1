#pragma once

#include "train/task_type.h"

namespace co2::train {

/// Byte-level language modelling: the model is a preset of gpt_config.h, the corpus a text of data/corpus.h.
TaskType gpt_type();

}  // namespace co2::train
