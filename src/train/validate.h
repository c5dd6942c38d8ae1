#pragma once

#include <co2/error.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace co2::train {

struct TrainConfig;

/// The highest values that options may have, here and on the command line. The lowest are 0 or 1.
struct Highest {
  static constexpr int kBatch = 65'536;
  static constexpr int kEvalBatches = 100'000;
  static constexpr std::int64_t kSteps = 1'000'000'000;
  static constexpr int kKeep = 1'000'000;
  static constexpr double kLearningRate = 100;
  static constexpr double kRateFactor = 1000;
  static constexpr double kWeightDecay = 100;
  static constexpr double kGradientClip = 1e9;
};

/// Checks everything about a run that can be checked without data or workers; throws OptionError that names the
/// option, its value and what is allowed.
void validate(const TrainConfig& config);

/// For a task's own options: throw OptionError unless the value is within the range, or above zero and not above
/// `high`. NaN is outside of every range.
void within(const char* option, double value, double low, double high);
void above_zero(const char* option, double value, double high);

/// The error for a name that is none of `valid`, with the closest one if any is near.
OptionError unknown_choice(std::string_view option, std::string_view value, const std::vector<std::string>& valid);

}  // namespace co2::train
