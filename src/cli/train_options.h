#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "train/config.h"

namespace co2::cli {

/// One option of a training run: the same name, range and meaning as a flag (--local-steps 12), as a key of a
/// configuration file (local_steps = 12, or local-steps), and in --print-config and a run's config.json.
struct TrainOption {
  enum class Kind { kWhole, kWholeOrAuto, kNumber, kYesNo, kText };

  std::string flag;   ///< without the dashes
  std::string brief;  ///< a second, shorter flag; may be empty
  std::string group;  ///< its heading in the help
  Kind kind = Kind::kText;
  std::string allowed;  ///< what it may be, in words
  std::string help;
  /// Stores a value of the right kind; false if it is out of range. Null: back to the default.
  std::function<bool(train::TrainConfig&, const nlohmann::json&)> set;
  /// Null: left to the strategy, the machine or the preset.
  std::function<nlohmann::json(const train::TrainConfig&)> get;
  std::vector<std::string> names;  ///< if it must be one of these

  std::string key() const;           ///< the flag with underscores
  std::string default_text() const;  ///< for the help; empty if there is none to show
};

/// All of them, in the order of the help. The only place where a field of TrainConfig has a name.
const std::vector<TrainOption>& train_options();

/// A value on its way into the configuration, and where it came from, for messages.
struct Setting {
  std::string name;  ///< flag without dashes, or key
  nlohmann::json value;
  std::string shown_as;  ///< "--local-steps" or "local_steps"
  std::string place;     ///< " (run.toml, line 3)" or empty
};

/// Throws OptionError: unknown name (with the closest one), wrong kind, out of range.
void apply(train::TrainConfig& config, const Setting& setting);

/// Reads a flag's text according to the option's kind. Throws OptionError.
nlohmann::json parse_text(const TrainOption& option, const std::string& text);

/// Checks the configuration as a whole: what ranges of single options can't see. Throws OptionError.
void check(const train::TrainConfig& config);

/// Every option with its value, blanks filled in by the strategy where it has something to say. apply() on each of
/// them gives the same run again.
nlohmann::ordered_json to_json(const train::TrainConfig& config);

}  // namespace co2::cli
