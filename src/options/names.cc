#include <co2/error.h>
#include <co2/options.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "base/closest_name.h"

namespace co2 {

namespace {

template <typename T, std::size_t N>
using Names = std::array<std::pair<T, std::string_view>, N>;

constexpr Names<Strategy, 10> kStrategies{{{Strategy::kNone, "none"},
                                           {Strategy::kDdp, "ddp"},
                                           {Strategy::kLocalSgd, "local-sgd"},
                                           {Strategy::kSlowMo, "slowmo"},
                                           {Strategy::kDiLoCo, "diloco"},
                                           {Strategy::kStreamingDiLoCo, "streaming-diloco"},
                                           {Strategy::kEagerDiLoCo, "eager-diloco"},
                                           {Strategy::kOverlapLocalSgd, "overlap-local-sgd"},
                                           {Strategy::kCo2Paper, "co2-paper"},
                                           {Strategy::kCo2, "co2"}}};
constexpr Names<Restart, 3> kRestarts{{{Restart::kPaper, "paper"}, {Restart::kKeep, "keep"}, {Restart::kMix, "mix"}}};
constexpr Names<ClipMode, 3> kClipModes{
    {{ClipMode::kUsual, "usual"}, {ClipMode::kValue, "value"}, {ClipMode::kNorm, "norm"}}};
constexpr Names<Wire, 6> kWires{{{Wire::kAuto, "auto"},
                                 {Wire::kPlain, "plain"},
                                 {Wire::kBfloat16, "bfloat16"},
                                 {Wire::kInt8, "int8"},
                                 {Wire::kInt4, "int4"},
                                 {Wire::kInt2, "int2"}}};
constexpr Names<Compute, 2> kComputes{{{Compute::kPlain, "plain"}, {Compute::kBfloat16, "bfloat16"}}};

template <typename T, std::size_t N>
std::string_view name_of(const Names<T, N>& names, T value) {
  for (const auto& [candidate, text] : names) {
    if (candidate == value) return text;
  }
  return "?";
}

template <typename T, std::size_t N>
T value_of(const Names<T, N>& names, std::string_view option, std::string_view text) {
  std::vector<std::string> known;
  for (const auto& [value, candidate] : names) {
    if (candidate == text) return value;
    known.emplace_back(candidate);
  }
  throw OptionError(fmt::format("{} '{}' is not known{} Allowed: {}", option, text, did_you_mean(text, known),
                                fmt::join(known, ", ")));
}

}  // namespace

std::string_view name(Strategy strategy) { return name_of(kStrategies, strategy); }
std::string_view name(Restart restart) { return name_of(kRestarts, restart); }
std::string_view name(ClipMode mode) { return name_of(kClipModes, mode); }
std::string_view name(Wire wire) { return name_of(kWires, wire); }
std::string_view name(Compute compute) { return name_of(kComputes, compute); }

Strategy strategy_from_name(std::string_view text) { return value_of(kStrategies, "strategy", text); }
Restart restart_from_name(std::string_view text) { return value_of(kRestarts, "restart", text); }
ClipMode clip_mode_from_name(std::string_view text) { return value_of(kClipModes, "clip_mode", text); }
Wire wire_from_name(std::string_view text) { return value_of(kWires, "wire", text); }
Compute compute_from_name(std::string_view text) { return value_of(kComputes, "compute", text); }

const std::vector<Strategy>& all_strategies() {
  static const std::vector<Strategy> all = [] {
    std::vector<Strategy> strategies;
    for (const auto& [strategy, text] : kStrategies) strategies.push_back(strategy);
    return strategies;
  }();
  return all;
}

}  // namespace co2
