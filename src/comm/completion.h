#pragma once

#include <co2/communicator.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace co2 {

/// What is left to do once all parts of a collective are over, and when that was done. The backend's thread calls back,
/// because nobody may be waiting.
///
/// Thread safety: every member may be called from any thread.
class Completion {
 public:
  Completion(std::size_t parts, std::function<void()> at_last) : under_way_(parts), at_last_(std::move(at_last)) {}

  void one_over(bool failed) {
    if (failed) failed_ = true;
    if (--under_way_ == 0) all_over();
  }
  /// Returns when at_last has run, on whichever thread came first.
  void all_over() {
    std::call_once(done_, [this] {
      if (at_last_ && !failed_) at_last_();
      at_last_ = nullptr;  // with the memory that it needed
      finished_ = Clock::now().time_since_epoch().count();
      run_callbacks();
    });
  }
  /// Runs `callback` when all is over, or at once.
  void then(std::function<void()> callback) {
    {
      const std::lock_guard lock(mutex_);
      if (!told_) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }
  bool over() const { return finished_.load() != 0; }
  Clock::time_point finished() const { return Clock::time_point(Clock::duration(finished_.load())); }

 private:
  void run_callbacks() {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      told_ = true;
      callbacks.swap(callbacks_);
    }
    for (const auto& callback : callbacks) callback();
  }

  std::atomic<std::size_t> under_way_;
  std::atomic<bool> failed_{false};
  std::once_flag done_;
  std::function<void()> at_last_;
  std::atomic<Clock::time_point::rep> finished_{0};
  std::mutex mutex_;
  bool told_ = false;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace co2
