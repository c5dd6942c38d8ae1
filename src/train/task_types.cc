#include "train/gpt/gpt_type.h"
#include "train/image/image_type.h"
#include "train/task_type.h"

namespace co2::train {

// Nothing but the table is here, so that a test program can have one of its own.
const std::vector<TaskType>& task_types() {
  static const std::vector<TaskType> types = {
      gpt_type(),
      image_type(),
  };
  return types;
}

}  // namespace co2::train
