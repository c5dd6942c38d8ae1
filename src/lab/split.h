#pragma once

#include <string_view>
#include <vector>

namespace co2::lab {

/// The parts between separators, empty ones too: "a,,b" has three.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

}  // namespace co2::lab
