#include "base/human.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <sstream>

namespace co2 {

std::string human_bytes(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) bytes /= 1000, ++unit;
  return unit == 0 ? fmt::format("{:.0f} {}", bytes, units[unit]) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string human_count(double count) {
  if (count < 1e4) return fmt::format("{:.0f}", count);
  if (count < 1e6) return fmt::format("{:.1f} k", count / 1e3);
  if (count < 1e9) return fmt::format("{:.2f} M", count / 1e6);
  return fmt::format("{:.2f} G", count / 1e9);
}

std::string thousands(double value) {
  std::string text = fmt::format("{:.0f}", value);
  const std::ptrdiff_t first_digit = text.starts_with('-') ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > first_digit; at -= 3) {
    text.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return text;
}

std::string clock_time(double seconds) {
  const auto whole = static_cast<long>(std::lround(seconds));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string plural(std::int64_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string wrap(const std::string& text, std::size_t width) {
  std::istringstream words(text);
  std::string word;
  std::string result;
  std::size_t column = 0;
  while (words >> word) {
    if (column > 0 && column + 1 + word.size() > width) {
      result += '\n';
      column = 0;
    }
    if (column > 0) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
  }
  return result;
}

}  // namespace co2
