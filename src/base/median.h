#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace co2 {

/// The value in the middle, which is always one of those given: of an even number the upper of the two in the middle.
/// There must be one. (spread_of() has the other median, the mean of those two.)
inline double upper_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace co2
