#pragma once

#include <atomic>

namespace co2::processes {

/// Turns the first SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 or SIGUSR2 into a flag that a training loop looks at, so
/// that it can end cleanly; the second one ends the process at once, unless it is SIGHUP: a terminal that goes away may
/// send several.
/// Signals that were ignored before (nohup) stay ignored.
/// One at a time; the former handlers come back at the end of its life.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  const std::atomic<bool>& requested() const;
  int signal() const;  ///< the one that was received, or 0
};

}  // namespace co2::processes
