#pragma once

#include <string_view>
#include <vector>

#include "cli/train_options.h"

namespace CLI {
class App;
}

namespace co2::cli {

/// Adds an option of a training run to a subcommand. What the user gives is appended to `settings`, which must outlive
/// the subcommand, in the order of the command line. `brief`: a second, shorter name.
void add_train_flag(CLI::App& sub, const TrainOption& option, std::vector<Setting>& settings,
                    std::string_view brief = {});

/// Whether one of the settings is about this flag (without dashes), and not a reset to the default.
bool given(const std::vector<Setting>& settings, std::string_view flag);

}  // namespace co2::cli
