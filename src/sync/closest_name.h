#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace co2 {

/// The candidate with the fewest edits from `text`, for "did you mean"; empty if none is near.
std::string closest(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace co2
