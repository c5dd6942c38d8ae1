#include "train/every.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace co2::train {

Every parse_every(const std::string& option, const std::string& text) {
  constexpr std::int64_t kMostSteps = 1'000'000'000;
  constexpr double kMostSeconds = 1e9;
  const char* const end = text.data() + text.size();
  Every every;
  if (const auto [after, problem] = std::from_chars(text.data(), end, every.steps);
      problem == std::errc() && after == end && every.steps >= 0 && every.steps <= kMostSteps) {
    return every;
  }
  double number = 0;
  const auto [unit, problem] = std::from_chars(text.data(), end, number);
  const std::string_view name(unit, static_cast<std::size_t>(end - unit));
  const double seconds = name == "s" ? 1 : name == "m" ? 60 : name == "h" ? 3600 : 0;
  if (problem != std::errc() || !(number * seconds > 0 && number * seconds <= kMostSeconds)) {
    throw OptionError(fmt::format(
        "{} is '{}'; it must be a number of steps (500), a time (90s, 10m, 1.5h), or 0 for never", option, text));
  }
  return {.seconds = number * seconds};
}

}  // namespace co2::train
