#include "train/task.h"

#include <algorithm>

#include "base/closest_name.h"
#include "train/config.h"
#include "train/gpt/gpt_task.h"
#include "train/validate.h"

namespace co2::train {
namespace {

struct Entry {
  const char* name;
  void (*validate)(const TrainConfig&);
  std::unique_ptr<Task> (*make)(const TrainConfig&, const TaskContext&);
};

constexpr Entry kTasks[] = {
    {"gpt", validate_gpt_task, make_gpt_task},
};

const Entry& entry_of(const std::string& name) {
  const auto* found = std::ranges::find_if(kTasks, [&](const Entry& entry) { return entry.name == name; });
  if (found == std::end(kTasks)) throw unknown_choice("task", name, task_names());
  return *found;
}

}  // namespace

const std::vector<std::string>& task_names() {
  static const std::vector<std::string> names = names_of(kTasks, &Entry::name);
  return names;
}

void validate_task(const TrainConfig& config) { entry_of(config.task).validate(config); }

std::unique_ptr<Task> make_task(const TrainConfig& config, const TaskContext& context) {
  return entry_of(config.task).make(config, context);
}

}  // namespace co2::train
