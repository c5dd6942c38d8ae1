#include "lab/status_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/clock.h"
#include "base/human.h"

namespace co2::lab {

StatusLine::StatusLine(std::vector<std::string> kinds) : kinds_(std::move(kinds)), terminal_(isatty(STDERR_FILENO)) {}
StatusLine::~StatusLine() { clear(); }

void StatusLine::clear() {
  if (terminal_) fmt::print(stderr, "\r\033[K");
}

void StatusLine::begin(const std::string& what) {
  ++run_;
  what_ = what;
  begin_ = std::chrono::steady_clock::now();
  shown_ = {};
  update([] { return std::string(); });
}

double StatusLine::seconds_left(double elapsed) const {
  if (seconds_.empty()) return std::numeric_limits<double>::quiet_NaN();
  double mean = 0;
  for (const auto& [kind, seconds] : seconds_) mean += seconds / static_cast<double>(seconds_.size());
  double left = -elapsed;
  for (std::size_t run = run_ - 1; run < kinds_.size(); ++run) {
    const auto known = seconds_.find(kinds_[run]);
    left += known != seconds_.end() ? known->second : mean;
  }
  return std::max(0.0, left);
}

void StatusLine::update(const std::function<std::string()>& progress) {
  constexpr std::chrono::milliseconds kPause{500};  // the cores are for the training
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - shown_ < kPause) return;
  shown_ = now;
  const double elapsed = seconds_between(begin_, now);
  std::string line = fmt::format("run {}/{}  {}  {}", run_, kinds_.size(), what_, clock_time(elapsed));
  if (const std::string text = progress(); !text.empty()) line += "  " + text;
  const double left = seconds_left(elapsed);
  if (std::isfinite(left)) line += fmt::format("  about {} left", clock_time(left));
  fmt::print(stderr, "\r\033[K{}", line);
  std::fflush(stderr);
}

void StatusLine::end(const std::string& outcome) {
  seconds_[kinds_[run_ - 1]] = seconds_since(begin_);
  say(fmt::format("run {}/{}  {}  {}", run_, kinds_.size(), what_, outcome));
}

void StatusLine::say(const std::string& text) {
  clear();
  fmt::print(stderr, "{}\n", text);
}

}  // namespace co2::lab
