#include "checkpoint/exact_number.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>

namespace co2::checkpoint {
namespace {

constexpr std::string_view kNan = "nan:";

/// All of the text, or nothing.
template <typename T, typename... Format>
std::optional<T> parse(std::string_view text, Format... format) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, format...);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

/// A number has one text: others that would do are none of ours.
template <typename T>
std::optional<T> if_written_so(std::optional<T> value, std::string_view text) {
  return value && exact_text(*value) == text ? value : std::nullopt;
}

}  // namespace

std::string exact_text(std::int64_t value) { return fmt::format("{}", value); }

std::string exact_text(double value) {
  if (std::isnan(value)) return fmt::format("{}{:016x}", kNan, std::bit_cast<std::uint64_t>(value));
  return fmt::format("{}", value);
}

std::optional<std::int64_t> exact_int64(std::string_view text) {
  return if_written_so(parse<std::int64_t>(text), text);
}

std::optional<double> exact_double(std::string_view text) {
  if (!text.starts_with(kNan)) return if_written_so(parse<double>(text), text);
  const auto bits = parse<std::uint64_t>(text.substr(kNan.size()), 16);
  return bits ? if_written_so<double>(std::bit_cast<double>(*bits), text) : std::nullopt;
}

}  // namespace co2::checkpoint
