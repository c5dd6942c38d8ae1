#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace co2::lab {

/// What goes on, on standard error: on a terminal one line that is written over, with the time that is left; and a line
/// per run, when it is over.
class StatusLine {
 public:
  /// `kinds`: of all runs, in their order. Those of the same kind take equally long.
  explicit StatusLine(std::vector<std::string> kinds);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void begin(const std::string& what);  ///< the next run
  /// While it runs, as often as you like. `progress` is asked only when there is something to show and somebody to see.
  void update(const std::function<std::string()>& progress);
  void end(const std::string& outcome);  ///< stays on the screen
  void say(const std::string& text);     ///< lines above

 private:
  double seconds_left(double elapsed) const;  ///< NaN: nobody knows
  void clear();

  const std::vector<std::string> kinds_;
  const bool terminal_;
  std::size_t run_ = 0;  // counts from 1
  std::string what_;
  std::map<std::string, double> seconds_;  // of the newest run of each kind
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace co2::lab
