#include "train/progress.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/human.h"
#include "processes/screen.h"

namespace co2::train {

namespace {

using Clock = std::chrono::steady_clock;

/// The words and signs of a line, which a terminal without UTF-8 shows in ASCII.
struct Signs {
  bool utf8;
  std::string_view tau() const { return utf8 ? "τ" : "tau"; }
};

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string text(value);
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text.find("utf-8") != text.npos || text.find("utf8") != text.npos;
  }
  return false;
}

/// Columns that UTF-8 text takes on a terminal; our own signs are all one column wide.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string clock_time(double seconds) {
  const auto total = static_cast<long long>(std::ceil(std::min(seconds, 1e9)));
  const long long hours = total / 3600;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, total / 60 % 60, total % 60);
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

double share_done(const ProgressState& state) {
  if (state.steps <= 0) return 0;
  return std::clamp(static_cast<double>(state.step) / static_cast<double>(state.steps), 0.0, 1.0);
}

/// The fields of a line, the most important first. Unknown values are left out.
std::vector<std::string> fields(const ProgressState& state, const TaskWords& words, const Signs& signs) {
  std::vector<std::string> result;
  const std::string steps = std::to_string(state.steps);
  result.push_back(fmt::format("{:>{}}/{}", state.step, steps.size(), steps));
  if (!std::isnan(state.loss)) result.push_back(fmt::format("{} {:.3f}", words.loss, state.loss));
  for (std::size_t i = 0; i < state.metrics.size(); ++i) {
    result.push_back(fmt::format("{} {:.3f}", words.metrics[i], state.metrics[i]));
  }
  if (std::isfinite(state.units_per_second)) {
    result.push_back(fmt::format("{} {}/s", thousands(std::max(0.0, state.units_per_second)), words.unit));
  }
  // Cut rather than rounded: 100 % means that nothing was exposed.
  if (std::isfinite(state.overlap)) {
    result.push_back(fmt::format("overlap {:.0f} %", std::floor(100 * std::clamp(state.overlap, 0.0, 1.0))));
  }
  if (state.local_steps > 0) result.push_back(fmt::format("{} {}", signs.tau(), state.local_steps));
  if (std::isfinite(state.seconds_left)) {
    result.push_back(fmt::format("{} left", clock_time(std::max(0.0, state.seconds_left))));
  }
  return result;
}

std::string bar(double share, std::size_t width, const Signs& signs) {
  constexpr std::string_view kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double filled = share * static_cast<double>(width);
  const auto whole = std::min(width, static_cast<std::size_t>(filled));
  std::string text = "[";
  std::size_t used = whole;
  for (std::size_t i = 0; i < whole; ++i) text += signs.utf8 ? "█" : "#";
  if (signs.utf8 && whole < width) {
    const auto eighth = static_cast<std::size_t>((filled - static_cast<double>(whole)) * 8);
    text += kEighths[eighth];
    used += eighth > 0 ? 1 : 0;
  }
  text.append(width - used, ' ');
  return text + "]";
}

/// As many fields as fit into `width` columns, and a bar if there is room for one.
std::string live_line(const ProgressState& state, const TaskWords& words, std::size_t width, const Signs& signs) {
  constexpr std::size_t kShortestBar = 8;
  constexpr std::size_t kLongestBar = 30;
  constexpr std::string_view kGap = "  ";
  std::string line;
  for (const std::string& field : fields(state, words, signs)) {
    const std::size_t gap = line.empty() ? 0 : kGap.size();
    if (columns(line) + gap + columns(field) > width) continue;
    if (gap > 0) line += kGap;
    line += field;
  }
  const std::size_t used = columns(line) + 3;  // brackets and a space
  if (used + kShortestBar > width) return line;
  return bar(share_done(state), std::min(kLongestBar, width - used), signs) + " " + line;
}

std::string plain_line(const ProgressState& state, const TaskWords& words, const Signs& signs) {
  return fmt::format("step {}  {:.0f} %", fmt::join(fields(state, words, signs), "  "),
                     std::floor(100 * share_done(state)));
}

}  // namespace

struct Progress::Impl {
  std::FILE* stream;
  TaskWords words;
  bool live = false;
  Signs signs{.utf8 = false};
  bool any = false;      // an update has been shown
  bool unshown = false;  // the newest update has not
  bool drawn = false;    // a live line is on the screen
  ProgressState newest;
  Clock::time_point shown_time;
  std::int64_t shown_step = -1;
  int shown_tenth = 0;

  void show() {
    any = true;
    unshown = false;
    shown_time = Clock::now();
    shown_step = newest.step;
    shown_tenth = tenth();
    if (live) {
      // One column stays free: some terminals wrap as soon as the last one is written.
      const std::size_t width = processes::screen_width(stream) - 1;
      processes::show(stream, fmt::format("\r{}\033[K", live_line(newest, words, width, signs)));
      drawn = true;
    } else {
      processes::show(stream, plain_line(newest, words, signs) + "\n");
    }
  }

  int tenth() const { return static_cast<int>(share_done(newest) * 10); }

  bool due() const {
    if (!any || (newest.step >= newest.steps && newest.step != shown_step)) return true;
    const auto since = Clock::now() - shown_time;
    if (live) return since >= std::chrono::milliseconds(100);
    // A short run does not write ten lines in one second.
    return since >= std::chrono::seconds(10) || (tenth() != shown_tenth && since >= std::chrono::seconds(1));
  }
};

Progress::Progress(std::FILE* stream, TaskWords words) : impl_(std::make_unique<Impl>()) {
  impl_->stream = stream;
  impl_->words = std::move(words);
  impl_->live = processes::is_live(stream);
  impl_->signs.utf8 = locale_is_utf8();
}

Progress::~Progress() { finish(); }

void Progress::update(const ProgressState& state) {
  impl_->newest = state;
  impl_->unshown = true;
  if (impl_->due()) impl_->show();
}

void Progress::message(const std::string& line) {
  const std::string text = impl_->live ? wrap(line, processes::screen_width(impl_->stream)) : line;
  if (!impl_->drawn) {
    processes::show(impl_->stream, text + "\n");
    return;
  }
  processes::show(impl_->stream, fmt::format("\r\033[K{}\n", text));
  impl_->show();
}

void Progress::finish() {
  if (impl_->unshown && (impl_->drawn || impl_->newest.step != impl_->shown_step)) impl_->show();
  if (!impl_->drawn) return;
  processes::show(impl_->stream, "\n");
  impl_->drawn = false;
}

}  // namespace co2::train
