#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace co2::lab {

/// This program, for a child that we fork to execute: the very file that runs now, even if it has been replaced since.
inline constexpr const char* kOwnProgram = "/proc/self/exe";

/// A program that is run to its end.
struct Tool {
  std::vector<std::string> command;
  std::vector<std::string> environment;  ///< "NAME=value"
  std::string input{};                   ///< what it finds on standard input
  std::chrono::milliseconds timeout{30'000};
  bool show_errors = false;        ///< what it writes to standard error reaches the user, instead of `errors`
  std::function<int()> prepare{};  ///< as in cli::ChildSpec
};

struct ToolResult {
  int code = 0;  ///< 128 + signal if it was killed; after the timeout it is
  std::string output;
  std::string errors;
};

/// Throws ClusterError if it can't be started.
ToolResult run_tool(const Tool& tool);

/// The end of a text, at most that many lines, without blank lines at the end.
std::string last_lines(const std::string& text, int count);

}  // namespace co2::lab
