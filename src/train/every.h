#pragma once

#include <cstdint>
#include <string>

namespace co2::train {

/// How often something happens: every so many steps, or every so often; never if both are 0.
struct Every {
  std::int64_t steps = 0;
  double seconds = 0;
  bool never() const { return steps == 0 && seconds == 0; }
};

/// "500" (steps), "90s", "10m", "1.5h", or "0" for never. Throws OptionError that names `option`.
Every parse_every(const std::string& option, const std::string& text);

}  // namespace co2::train
