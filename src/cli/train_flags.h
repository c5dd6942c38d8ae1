#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cli/train_options.h"

namespace CLI {
class App;
}

namespace co2::cli {

/// Adds an option of a training run to a subcommand. What the user gives is appended to `settings`, which must outlive
/// the subcommand, in the order of the command line. The help shows the defaults of these tasks; of none: it is hidden.
void add_train_flag(CLI::App& sub, const TrainOption& option, const std::vector<std::string>& tasks,
                    std::vector<Setting>& settings);
/// The same for those with these flags (without dashes), and those of tasks that shape the model.
void add_train_flags(CLI::App& sub, std::span<const std::string_view> flags, std::vector<Setting>& settings);

/// What stands for an option's value in the help.
const char* value_name(const TrainOption& option);

/// The words of a command line that say so: "--steps" and "60", "--no-pin", or the task alone.
std::vector<std::string> as_words(const std::string& flag, const nlohmann::json& value);

/// Whether one of the settings is about this flag (without dashes), and not a reset to the default.
bool given(const std::vector<Setting>& settings, std::string_view flag);

}  // namespace co2::cli
