#pragma once

#include <sys/types.h>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "processes/placement.h"

namespace co2::processes {

/// What a worker process starts with. Everything is prepared before the fork.
struct ChildSpec {
  std::vector<std::string> command;
  std::vector<std::string> environment;  ///< "NAME=value"
  std::vector<int> cores;                ///< pinned to these; empty: not pinned
  int standard[3] = {-1, -1, -1};        ///< descriptors for stdin, stdout and stderr; -1: ours
  int inherit = -1;                      ///< one more descriptor that stays open in the child; -1: none
  bool writes_to_terminal = false;       ///< its process group is in the background, and yet it may write there
  sigset_t signal_mask{};                ///< the mask to start with
  /// Runs in the child before the program, such as to enter another network. Only async-signal-safe calls. Returns 0,
  /// or an errno, which is then reported as if the program could not be executed.
  std::function<int()> prepare{};
};

/// Starts a process in a process group of its own that dies with us. Returns its id once the program runs.
/// Throws Error 127 or 126 if the program can't be executed, ClusterError if there can be no more processes.
pid_t start_child(const ChildSpec& spec);

}  // namespace co2::processes
