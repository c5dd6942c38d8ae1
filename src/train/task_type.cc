#include "train/task_type.h"

#include <algorithm>
#include <utility>

#include "base/closest_name.h"
#include "train/config.h"
#include "train/validate.h"

namespace co2::train {

std::string default_task() { return task_types().front().name; }

const TaskType& task_type(const std::string& name) {
  const auto found = std::ranges::find(task_types(), name, &TaskType::name);
  if (found == task_types().end()) throw unknown_choice("task", name, task_names());
  return *found;
}

std::vector<std::string> task_names() { return names_of(task_types(), &TaskType::name); }

std::vector<std::string> preset_names(const TaskType& type) { return names_of(type.presets, &Preset::name); }

TrainConfig defaults_of(const std::string& task) {
  const TaskType& type = task_type(task);
  TrainConfig config;
  config.task = type.name;
  if (type.set_defaults) type.set_defaults(config);
  return config;
}

std::string model_of(const TrainConfig& config) {
  return config.model.empty() ? task_type(config.task).presets.front().name : config.model;
}

TrainConfig with_rate(TrainConfig config) {
  if (config.learning_rate != 0) return config;
  const TaskType& type = task_type(config.task);
  const auto preset = std::ranges::find(type.presets, model_of(config), &Preset::name);
  if (preset == type.presets.end()) throw unknown_choice("model", config.model, preset_names(type));
  config.learning_rate = config.optimizer == "sgd" ? preset->sgd_rate : preset->adam_rate;
  return config;
}

TrainConfig settled(TrainConfig config) {
  config.model = model_of(config);
  task_type(config.task).settle(config);
  config = with_rate(std::move(config));
  return config;
}

}  // namespace co2::train
