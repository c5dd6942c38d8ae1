#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace co2::train {

/// A program to run, without a shell in between: arguments arrive as they are.
struct Command {
  std::vector<std::string> arguments{};  ///< the program (looked up in PATH), then its arguments
  std::filesystem::path folder{};        ///< its working directory, where the files below are too unless absolute
  std::filesystem::path input{};         ///< its standard input; empty: nothing
  std::filesystem::path output{};        ///< where its standard output goes
  std::filesystem::path log{};           ///< where its standard error goes
  std::chrono::seconds timeout{300};
  std::function<void()> tick{};       ///< called about twenty times a second while it runs, if given
  std::function<bool()> cancelled{};  ///< if given and true, the program is ended
};

/// Runs it to its end. Throws DataError if it can't be started, fails (with the beginning of what it complained about),
/// is cancelled, or takes longer than its timeout; it and its children are then gone.
void run_command(const Command& command);

}  // namespace co2::train
