#include "train/data/download_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "processes/screen.h"

namespace co2::train {

namespace fs = std::filesystem;

DownloadBar::DownloadBar(std::string name, fs::path folder, double megabytes)
    : name_(std::move(name)), folder_(std::move(folder)), megabytes_(megabytes) {}

DownloadBar::~DownloadBar() {
  if (drawn_) processes::show(stderr, "\r\033[K");
}

void DownloadBar::draw() {
  if (!processes::is_live(stderr)) return;
  // Files come and go while we look: a size that can't be read counts as nothing.
  double arrived = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unreadable;
    const auto size = fs::file_size(entry->path(), unreadable);
    if (!unreadable) arrived += static_cast<double>(size) / 1e6;
  }
  constexpr int kLongestBar = 30;
  const double seconds = seconds_since(began_);
  const std::string figures = fmt::format("{:.1f}/{:.1f} MB {:.0f} s", arrived, megabytes_, seconds);
  // Brackets, two spaces, and one column that stays free: some terminals wrap as soon as the last one is written.
  const auto room = static_cast<int>(processes::screen_width(stderr)) - static_cast<int>(name_.size() + figures.size());
  const int width = std::clamp(room - 5, 0, kLongestBar);
  const int full = static_cast<int>(std::min(arrived / megabytes_, 1.0) * width);
  const std::string bar = width > 0 ? fmt::format("[{:#<{}}{:.<{}}] ", "", full, "", width - full) : "";
  processes::show(stderr, fmt::format("\r{} {}{}\033[K", name_, bar, figures));
  drawn_ = true;
}

}  // namespace co2::train
