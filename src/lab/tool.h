#pragma once

#include <co2/error.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "processes/signal_queue.h"

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
  std::function<int()> prepare{};  ///< as in ChildSpec
  /// One to stop ends the tool and everything in its process group: whoever waits for a long time gives them.
  const processes::SignalQueue* signals = nullptr;
};

struct ToolResult {
  int code = 0;  ///< 128 + signal if it was killed; after the timeout it is
  bool timed_out = false;
  std::string output{};
  std::string errors{};
};

/// A signal asked us to stop; the program then ends with 128 + signal.
class Stopped : public Error {
 public:
  explicit Stopped(int signal);
};

/// Does what the signals that have arrived ask for: throws Stopped, or sleeps until we are to go on (Ctrl-Z), and with
/// us the process group `group`, if there is one.
void obey(const processes::SignalQueue& signals, pid_t group = 0);

/// Throws ClusterError if it can't be started, Stopped at one of its signals.
ToolResult run_tool(const Tool& tool);

/// "took longer than 30 min", "ended with exit code 3".
std::string how_it_ended(const Tool& tool, const ToolResult& result);

/// The end of a text, at most that many lines, without blank lines at the end.
std::string last_lines(const std::string& text, int count);

}  // namespace co2::lab
