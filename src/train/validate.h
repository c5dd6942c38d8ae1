#pragma once

#include <co2/error.h>

#include <string>
#include <string_view>
#include <vector>

namespace co2::train {

struct TrainConfig;

/// Checks everything about a run that can be checked without data or workers; throws OptionError that names the
/// option, its value and what is allowed.
void validate(const TrainConfig& config);

/// The error for a name that is none of `valid`, with the closest one if any is near.
OptionError unknown_choice(std::string_view option, std::string_view value, const std::vector<std::string>& valid);

}  // namespace co2::train
