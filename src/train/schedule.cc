#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/validate.h"

namespace co2::train {

const std::vector<std::string>& RateSchedule::shapes() {
  static const std::vector<std::string> names = {"constant", "linear", "cosine"};
  return names;
}

RateSchedule::RateSchedule(std::string_view shape, double rate, std::int64_t steps, double warmup, double final_share)
    : rate_(rate),
      steps_(std::max<std::int64_t>(steps, 1)),
      warmup_(std::llround(warmup * static_cast<double>(steps_))),
      final_share_(final_share) {
  const auto found = std::ranges::find(shapes(), shape);
  if (found == shapes().end()) throw unknown_choice("schedule", shape, shapes());
  shape_ = static_cast<Shape>(found - shapes().begin());
}

double RateSchedule::at(std::int64_t step) const {
  if (step < warmup_) return rate_ * static_cast<double>(step + 1) / static_cast<double>(warmup_);
  if (shape_ == Shape::kConstant) return rate_;
  // 0 at the first step after the warm-up, 1 at the last step of the run.
  const auto last = static_cast<double>(std::max<std::int64_t>(steps_ - 1 - warmup_, 1));
  const double progress = std::min(static_cast<double>(step - warmup_) / last, 1.0);
  const double remaining = shape_ == Shape::kLinear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return rate_ * (final_share_ + (1 - final_share_) * remaining);
}

}  // namespace co2::train
