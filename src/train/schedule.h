#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace co2::train {

/// The learning rate of each step: a linear warm-up, then constant, linear or cosine to the final rate.
class RateSchedule {
 public:
  /// `shape` is one of shapes(); `warmup` is a share of the steps (0..1), `final_share` the rate of the last step as a
  /// share of `rate` (0..1). Throws OptionError for an unknown shape.
  RateSchedule(std::string_view shape, double rate, std::int64_t steps, double warmup, double final_share);

  /// The rate of step 0, 1, ... Step k of w warm-up steps has rate (k+1)/w: never zero. Beyond the last step it stays.
  double at(std::int64_t step) const;

  static const std::vector<std::string>& shapes();

 private:
  enum class Shape { kConstant, kLinear, kCosine };
  Shape shape_;
  double rate_;
  std::int64_t steps_;
  std::int64_t warmup_;
  double final_share_;
};

}  // namespace co2::train
