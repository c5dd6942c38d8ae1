#pragma once

#include <co2/options.h>

#include <string>

namespace co2::train {

/// Figures and settings as a person reads them.
std::string human_bytes(double bytes);  ///< "1.5 MB"
std::string human_count(double count);  ///< "1.04 M"
std::string recipe_text(const Recipe& recipe);

}  // namespace co2::train
