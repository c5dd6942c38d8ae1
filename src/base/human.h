#pragma once

#include <string>

namespace co2 {

/// Figures as a person reads them.
std::string human_bytes(double bytes);   ///< "1.5 MB"
std::string human_count(double count);   ///< "1.04 M"
std::string thousands(double value);     ///< 12345.6 as "12,346"
std::string clock_time(double seconds);  ///< "1:05", "2:01:05"

}  // namespace co2
