#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace co2::study {

/// What goes on, on standard error: on a terminal one line that is written over, and a line per run when it is over.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// As often as you like: `line` is asked only when there is somebody to see it, and twice a second at most.
  void update(const std::function<std::string()>& line);
  void say(const std::string& text);  ///< lines above, which stay

 private:
  void clear();

  const bool live_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace co2::study
