#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace co2 {

/// Figures as a person reads them.
std::string human_bytes(double bytes);   ///< "1.5 MB"
std::string human_count(double count);   ///< "1.04 M"
std::string thousands(double value);     ///< 12345.6 as "12,346"
std::string clock_time(double seconds);  ///< "1:05", "2:01:05"

/// "1 run", "2 runs".
std::string plural(std::int64_t count, const std::string& what);
/// Words in lines of at most `width` columns; a longer word has a line of its own.
std::string wrap(const std::string& text, std::size_t width);

}  // namespace co2
