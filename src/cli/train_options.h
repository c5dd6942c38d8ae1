#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/config.h"
#include "train/option.h"

namespace co2::cli {

using train::TrainOption;

/// Every option of a run of that task, in the order of the help: those that all tasks have, and its own. Throws
/// OptionError if there is no such task.
const std::vector<TrainOption>& train_options(const std::string& task);

/// Every flag that there is, in the order of the help, whichever task it belongs to.
const std::vector<TrainOption>& all_train_options();

/// A value on its way into the configuration, and where it came from, for messages.
struct Setting {
  std::string name;  ///< flag without dashes, or key
  nlohmann::json value;
  std::string shown_as;  ///< "--local-steps" or "local_steps"
  std::string place;     ///< " (run.toml, line 3)" or empty
};

/// Throws OptionError: unknown name (with the closest one), wrong kind, out of range, or not one of config.task.
void apply(train::TrainConfig& config, const Setting& setting);
/// All of them in their order, to a fresh configuration. But for the task, on which depends what the others mean, and
/// what they are by themselves: it comes first.
void apply_all(train::TrainConfig& config, const std::vector<Setting>& settings);

/// Reads a flag's text according to the option's kind. Throws OptionError.
nlohmann::json parse_text(const TrainOption& option, const std::string& text);

/// Checks the configuration as a whole: what ranges of single options can't see. Throws OptionError.
void check(const train::TrainConfig& config);

/// Every option with its value, blanks filled in by the strategy where it has something to say. apply() on each of
/// them gives the same run again.
nlohmann::ordered_json to_json(const train::TrainConfig& config);

}  // namespace co2::cli
