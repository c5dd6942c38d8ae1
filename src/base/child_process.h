#pragma once

#include <co2/error.h>
#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

namespace co2 {

/// What a process starts with. Everything is prepared before the fork.
struct ChildSpec {
  std::vector<std::string> command{};      ///< program (looked up in our PATH) and arguments
  std::vector<std::string> environment{};  ///< "NAME=value"
  std::string folder{};                    ///< its working directory; empty: ours
  std::vector<int> cores{};                ///< pinned to these; empty: not pinned
  int standard[3] = {-1, -1, -1};          ///< descriptors for stdin, stdout and stderr; -1: ours
  std::vector<int> inherit{};              ///< more descriptors that stay open in the child
  bool close_others = false;               ///< nothing else stays open, even if it was opened to be inherited
  bool writes_to_terminal = false;         ///< its process group is in the background, and yet it may write there
  sigset_t signal_mask{};                  ///< the mask to start with
  /// Signals that do to it what they do to any program, even if we ignore them. (A handler of ours never gets there.)
  std::vector<int> default_signals{SIGPIPE};
  /// Runs in the child before the program, such as to enter another network. Only async-signal-safe calls. Returns 0,
  /// or an errno, which is then reported as if the program could not be executed.
  std::function<int()> prepare{};
};

/// A program that can't be executed: 127 if there is none of that name, otherwise 126.
class CannotExecute : public Error {
 public:
  CannotExecute(const std::string& program, int cause);
  int cause() const noexcept { return cause_; }  ///< an errno

 private:
  int cause_;
};

/// Starts a process in a process group of its own that dies with us. Returns its id once the program runs.
/// Throws CannotExecute, or ClusterError if there can be no more processes.
pid_t start_child(const ChildSpec& spec);

/// True if PATH has an executable of that name.
bool have_program(const std::string& name);

}  // namespace co2
