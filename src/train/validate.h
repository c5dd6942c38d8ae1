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
  static constexpr int kContext = 65'536;
  static constexpr int kBatch = 65'536;
  static constexpr int kEvalBatches = 100'000;
  static constexpr int kSampleBytes = 1'000'000;
  static constexpr std::int64_t kSteps = 1'000'000'000;
  static constexpr double kValidationShare = 0.5;
  static constexpr double kLearningRate = 100;
  static constexpr double kWeightDecay = 100;
  static constexpr double kGradientClip = 1e9;
};

/// Checks everything about a run that can be checked without data or workers; throws OptionError that names the
/// option, its value and what is allowed.
void validate(const TrainConfig& config);

/// The error for a name that is none of `valid`, with the closest one if any is near.
OptionError unknown_choice(std::string_view option, std::string_view value, const std::vector<std::string>& valid);

}  // namespace co2::train
