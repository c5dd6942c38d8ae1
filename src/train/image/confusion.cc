#include "train/image/confusion.h"

#include <fmt/format.h>

#include <algorithm>

namespace co2::train {

Confusion::Confusion(std::vector<std::string> classes)
    : classes_(std::move(classes)), counts_(classes_.size() * classes_.size()) {}

std::int64_t Confusion::right() const {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < std::ssize(classes_); ++i) count += counts_[index(i, i)];
  return count;
}

std::string Confusion::table() const {
  constexpr std::size_t kMostLines = 20;
  struct Line {
    std::int64_t truth = 0;
    std::int64_t all = 0;
    std::int64_t right = 0;
    std::int64_t other = -1;  // that it was taken for most often
    double share() const { return static_cast<double>(right) / static_cast<double>(all); }
  };
  std::vector<Line> lines;
  std::size_t longest = 0;
  for (std::int64_t truth = 0; truth < std::ssize(classes_); ++truth) {
    Line line{.truth = truth, .right = counts_[index(truth, truth)]};
    for (std::int64_t guess = 0; guess < std::ssize(classes_); ++guess) {
      const std::int64_t count = counts_[index(truth, guess)];
      line.all += count;
      if (guess == truth || count == 0) continue;
      if (line.other < 0 || count > counts_[index(truth, line.other)]) line.other = guess;
    }
    if (line.all == 0) continue;
    lines.push_back(line);
    longest = std::max(longest, classes_[static_cast<std::size_t>(truth)].size());
  }
  const auto name = [&](std::int64_t label) { return classes_[static_cast<std::size_t>(label)]; };
  std::string text;
  if (lines.size() > kMostLines) {
    text = fmt::format("  (the worst {} of {} classes)\n", kMostLines, lines.size());
    std::ranges::stable_sort(lines, {}, &Line::share);
    lines.resize(kMostLines);
  }
  for (const Line& line : lines) {
    text += fmt::format("  {:<{}}  {:.3f} of {}", name(line.truth), longest, line.share(), line.all);
    if (line.other >= 0) {
      text += fmt::format(", {} taken for {}", counts_[index(line.truth, line.other)], name(line.other));
    }
    text += '\n';
  }
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace co2::train
