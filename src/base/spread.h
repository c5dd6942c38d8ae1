#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace co2 {

/// Several measurements of the same thing. NaN: there is none.
struct Spread {
  double median = std::numeric_limits<double>::quiet_NaN();
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
  int count = 0;  ///< finite ones

  double half_range() const { return (high - low) / 2; }
};

/// Of the finite ones. The median of an even number of them is the mean of the two in the middle.
inline Spread spread_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back(), static_cast<int>(values.size())};
}

}  // namespace co2
