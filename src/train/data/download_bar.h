#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace co2::train {

/// What a download in progress looks like on a terminal: what has arrived in its folder, and the time. Elsewhere it
/// shows nothing. Its line is gone at the end of the scope.
class DownloadBar {
 public:
  DownloadBar(std::string name, std::filesystem::path folder, double megabytes);
  ~DownloadBar();
  DownloadBar(const DownloadBar&) = delete;
  DownloadBar& operator=(const DownloadBar&) = delete;
  void draw();

 private:
  std::string name_;
  std::filesystem::path folder_;
  double megabytes_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  bool drawn_ = false;
};

}  // namespace co2::train
