#include "train/data/download_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace co2::train {

namespace fs = std::filesystem;

DownloadBar::DownloadBar(std::string name, fs::path folder, double megabytes)
    : name_(std::move(name)), folder_(std::move(folder)), megabytes_(megabytes) {}

DownloadBar::~DownloadBar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void DownloadBar::draw() {
  if (!isatty(STDERR_FILENO)) return;
  // Files come and go while we look: a size that can't be read counts as nothing.
  double arrived = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unreadable;
    const auto size = fs::file_size(entry->path(), unreadable);
    if (!unreadable) arrived += static_cast<double>(size) / 1e6;
  }
  constexpr int kWidth = 30;
  const int full = static_cast<int>(std::min(arrived / megabytes_, 1.0) * kWidth);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:.1f}/{:.1f} MB {:.0f} s", name_, "", full, "", kWidth - full, arrived,
             megabytes_, seconds);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace co2::train
