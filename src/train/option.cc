#include "train/option.h"

#include <algorithm>

#include "train/config.h"
#include "train/task_type.h"

namespace co2::train {

std::string TrainOption::key() const {
  std::string result = flag;
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

std::string TrainOption::default_text(const std::string& task) const {
  const nlohmann::json value = get(defaults_of(task));
  if (value.is_null()) return {};
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace co2::train
