#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace co2::cli {

/// What a subcommand needs from the program around it. `chosen` is set by the subcommand that the user named, while
/// the command line is read; it does the work and returns the exit code.
struct Program {
  CLI::App& app;
  std::vector<std::string> words;         ///< of the command line, before a lone "--"
  std::vector<std::string> after_dashes;  ///< what follows a lone "--": another program's command line
  std::function<int()> chosen;
};

/// Each in a file of its own.
void add_train(Program& program);
void add_launch(Program& program);
void add_lab(Program& program);
void add_study(Program& program);
void add_doctor(Program& program);
void add_plan(Program& program);
void add_checkpoint(Program& program);
void add_export(Program& program);
void add_data(Program& program);

/// The whole program: reads the command line, runs the subcommand, reports errors on stderr. Returns the exit code.
int run_program(const std::vector<std::string>& arguments);

/// For a command that is only a family of others: named alone, it is an OptionError with this message.
void ask_for_subcommand(Program& program, CLI::App& command, const std::string& message);

/// Throws OptionError if an option's text is not UTF-8: results repeat it in JSON, which could not be written.
void require_utf8(const std::string& flag, const std::string& text);

}  // namespace co2::cli
