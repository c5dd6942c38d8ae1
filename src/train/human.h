#pragma once

#include <co2/options.h>

#include <string>

namespace co2::train {

/// Figures and settings as a person reads them.
std::string human_bytes(double bytes);  ///< "1.5 MB"
std::string human_count(double count);  ///< "1.04 M"
std::string thousands(double value);    ///< 12345.6 as "12,346"
std::string recipe_text(const Recipe& recipe);
/// Why a ZeRO stage that was asked for does not apply.
std::string nothing_to_shard_text(int zero);

}  // namespace co2::train
