#include "lab/rate.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include "lab/split.h"

namespace co2::lab {

namespace {

// Below, a single queued packet takes longer than a training step; above, no machine can keep up.
constexpr double kLowest = 1e6;
constexpr double kHighest = 100e9;
constexpr double kLongestPhase = 24 * 3600;

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array<Unit, 4> kRateUnits{{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}};
constexpr std::array<Unit, 3> kTimeUnits{{{"ms", 1e-3}, {"s", 1}, {"min", 60}}};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

template <std::size_t N>
std::optional<double> quantity(std::string_view text, const std::array<Unit, N>& units) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  for (const Unit& candidate : units) {
    if (candidate.name == unit) return number * candidate.factor;
  }
  return std::nullopt;
}

double parse_duration(std::string_view text, std::string_view scenario) {
  const auto seconds = quantity(lower(text), kTimeUnits);
  if (seconds && *seconds > 0 && *seconds <= kLongestPhase) return *seconds;
  throw OptionError(fmt::format(
      "'{}' in --rates '{}' is no duration between two rates: write 500ms, 20s or 2min, at most a day, as in "
      "1gbit/20s/100mbit",
      text, scenario));
}

Phase parse_phase(std::string_view text, std::string_view scenario, int hosts) {
  Phase phase;
  for (const std::string_view part : split(text, ':')) phase.hosts.push_back(parse_rate(part));
  const auto count = static_cast<int>(phase.hosts.size());
  if (count != 1 && count != hosts) {
    throw OptionError(
        fmt::format("--rates '{}' names {} hosts, but there are {} workers: give one rate for all, or one "
                    "for each, as in 1gbit:100mbit",
                    scenario, count, hosts));
  }
  return phase;
}

Scenario parse_scenario(std::string_view text, int hosts) {
  Scenario scenario{.text = lower(text), .phases = {}};
  const auto parts = split(text, '/');
  if (parts.size() % 2 == 0) {
    throw OptionError(
        fmt::format("--rates '{}' ends with a duration: write rate/duration/rate, as in 1gbit/20s/100mbit; "
                    "the last rate stays",
                    text));
  }
  for (std::size_t i = 0; i < parts.size(); i += 2) {
    scenario.phases.push_back(parse_phase(parts[i], text, hosts));
    if (i + 1 < parts.size()) scenario.phases.back().seconds = parse_duration(parts[i + 1], text);
  }
  return scenario;
}

}  // namespace

Rate Scenario::slowest() const {
  Rate result;
  for (const Phase& phase : phases) {
    for (const Rate& rate : phase.hosts) {
      if (!rate.unlimited() && (result.unlimited() || rate.bits_per_second < result.bits_per_second)) result = rate;
    }
  }
  return result;
}

std::string Scenario::folder_name() const {
  std::string name = text;
  std::replace(name.begin(), name.end(), '/', '_');
  std::replace(name.begin(), name.end(), ':', '-');
  return name;
}

Rate parse_rate(std::string_view text) {
  const std::string word = lower(text);
  if (word == "unlimited") return {};
  const auto bits = quantity(word, kRateUnits);
  if (!bits) {
    throw OptionError(
        fmt::format("'{}' is no rate: write a number and a unit, as in 100mbit or 1.5gbit, or "
                    "unlimited",
                    text));
  }
  if (!(*bits >= kLowest && *bits <= kHighest)) {
    throw OptionError(fmt::format("the rate '{}' is not allowed: it must be 1mbit to 100gbit, or unlimited", text));
  }
  return {*bits};
}

std::vector<Scenario> parse_rates(std::string_view text, int hosts) {
  std::vector<Scenario> scenarios;
  for (const std::string_view item : split(text, ',')) {
    Scenario scenario = parse_scenario(item, hosts);
    for (const Scenario& other : scenarios) {
      if (other.text == scenario.text) throw OptionError(fmt::format("--rates has '{}' twice", scenario.text));
    }
    scenarios.push_back(std::move(scenario));
  }
  return scenarios;
}

std::string format_rate(double bits_per_second) {
  if (bits_per_second >= 1e9) return fmt::format("{:.3g} Gbit/s", bits_per_second / 1e9);
  return fmt::format("{:.3g} Mbit/s", bits_per_second / 1e6);
}

}  // namespace co2::lab
