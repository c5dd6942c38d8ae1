#pragma once

#include <string>
#include <string_view>

namespace co2::train {

/// SHA-256 (FIPS 180-4) as 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace co2::train
