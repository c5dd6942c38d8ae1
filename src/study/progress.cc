#include "study/progress.h"

#include "processes/screen.h"

namespace co2::study {

Progress::Progress() : live_(processes::is_live(stderr)) {}
Progress::~Progress() { clear(); }

void Progress::clear() {
  if (live_) processes::show(stderr, "\r\033[K");
}

void Progress::update(const std::function<std::string()>& line) {
  constexpr std::chrono::milliseconds kPause{500};  // the cores are for the training
  const auto now = std::chrono::steady_clock::now();
  if (!live_ || now - shown_ < kPause) return;
  shown_ = now;
  std::string text = line();
  const std::size_t width = processes::screen_width(stderr);
  if (text.size() >= width) text.resize(width - 1);  // a line that wraps can't be written over
  processes::show(stderr, "\r\033[K" + text);
}

void Progress::say(const std::string& text) {
  clear();
  processes::show(stderr, text + "\n");
  shown_ = {};
}

}  // namespace co2::study
