#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace co2::checkpoint {

/// Numbers as text that a person can read, and that leads back to the very same bits.
std::string exact_text(std::int64_t value);  ///< "-12"
/// The shortest decimal number that no other double is closer to ("0.1", "1e+22", "-0"); "inf", "-inf"; for NaN, of
/// which there are many, its bits: "nan:7ff8000000000000".
std::string exact_text(double value);

/// Back again. Nothing, unless the text is exactly what exact_text() writes for some number.
std::optional<std::int64_t> exact_int64(std::string_view text);
std::optional<double> exact_double(std::string_view text);

}  // namespace co2::checkpoint
