#pragma once

#include <csignal>
#include <optional>

namespace co2::processes {

/// Signals that stop, suspend or report children, through a descriptor while it lives, instead of handlers: they are
/// handled between two polls, never inside something else. SIGPIPE is ignored meanwhile: a reader of ours that went
/// away is an error of write(), not our end. Signals that were ignored before (nohup) stay ignored.
///
/// Thread safety: blocks the signals for the calling thread only, so the process should have no other.
class SignalQueue {
 public:
  SignalQueue();   ///< throws ClusterError
  ~SignalQueue();  ///< the signal mask is as it was
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_; }                          ///< readable when there is a signal
  std::optional<int> next() const;                        ///< never blocks
  const sigset_t& old_mask() const { return old_mask_; }  ///< for children

 private:
  int fd_ = -1;
  sigset_t old_mask_{};
  struct sigaction old_pipe_ {};
};

}  // namespace co2::processes
