#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace co2::train {

struct TrainConfig;

/// One option of a training run: the same name, range and meaning as a flag (--local-steps 12), as a key of a
/// configuration file (local_steps = 12, or local-steps), and in --print-config and a run's config.json.
struct TrainOption {
  enum class Kind { kWhole, kWholeOrAuto, kNumber, kYesNo, kText };

  std::string flag;     ///< without the dashes
  std::string brief{};  ///< a second, shorter flag; may be empty
  std::string group{};  ///< its heading in the help
  Kind kind = Kind::kText;
  std::string allowed{};  ///< what it may be, in words
  std::string help{};
  /// Stores a value of the right kind; false if it is out of range. Null: back to the default.
  std::function<bool(TrainConfig&, const nlohmann::json&)> set{};
  /// Null: left to the strategy, the machine or the preset.
  std::function<nlohmann::json(const TrainConfig&)> get{};
  std::vector<std::string> names{};  ///< if it must be one of these

  bool of_task = false;  ///< a task's own, which others may not have
  /// A task's own that decides what a worker holds or how long a step takes: co2 plan and co2 doctor take it too.
  bool shapes_model = false;
  /// What checkpoints hold depends on it: a run can't go on with another value.
  bool shapes_state = false;
  nlohmann::json in_doctor{};  ///< the default of co2 doctor; null: the usual one
  nlohmann::json in_lab{};     ///< the default of co2 lab; null: the usual one

  std::string key() const;  ///< the flag with underscores
  /// For the help, of that task; empty if there is none to show.
  std::string default_text(const std::string& task) const;
};

}  // namespace co2::train
