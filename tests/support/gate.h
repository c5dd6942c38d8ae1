#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stdexcept>

namespace co2::test {

/// Holds the in-process wire until the test opens it. A wire that is never opened fails instead of hanging.
class Gate {
 public:
  std::function<void()> wire() {
    return [this] {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, std::chrono::seconds(10), [&] { return open_; })) {
        throw std::runtime_error("the test never opened the gate: something waited that must not wait");
      }
    };
  }
  void open() { set(true); }
  void close() { set(false); }

 private:
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
};

}  // namespace co2::test
