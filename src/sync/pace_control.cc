#include "sync/pace_control.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <vector>

#include "base/median.h"
#include "outer/wire_dtype.h"
#include "sync/visiting.h"

namespace co2 {

namespace {

constexpr std::size_t kForHiding = 3;  // a median of three ignores one spike, and follows a change after two rounds
constexpr std::size_t kForCost = 7;    // measured badly in short rounds, and a little more or less hurts nobody
// A plan stays as long as the wanted τ is within these shares of it: measured times are never twice the same, and each
// change costs a little. Too small a τ exposes the network, so that side is tighter, and within the margin.
constexpr double kTooLarge = 0.7;
constexpr double kTooSmall = 1.12;
constexpr double kTooCostly = 1.25;
constexpr double kLatencyShare = 0.25;  // of a round, for the latency of all its exchanges together

bool usable(const RoundTimes& t) {
  return t.step > 0 && std::isfinite(t.step) && t.transfer > 0 && std::isfinite(t.transfer) && t.cost >= 0 &&
         std::isfinite(t.cost);
}

}  // namespace

std::vector<WireChoice> wire_choices(const Recipe& recipe, at::ScalarType dtype) {
  std::vector<WireChoice> choices{{recipe.wire, wire_element_bytes(recipe.wire, dtype)}};
  if (recipe.adaptive_wire) choices.push_back({Wire::kInt2, wire_element_bytes(Wire::kInt2, dtype)});
  return choices;
}

const WireChoice& choice_of(const std::vector<WireChoice>& choices, Wire wire) {
  const auto found = std::ranges::find(choices, wire, &WireChoice::wire);
  return found == choices.end() ? choices.front() : *found;
}

double with_other_bytes(double seconds, double latency, double share) {
  return seconds - (1 - share) * std::max(seconds - latency, 0.0);
}

PaceControl::PaceControl(const PaceLimits& limits, Plan start) : limits_(limits), plan_(start) {
  if (!(limits_.latency >= 0 && std::isfinite(limits_.latency))) limits_.latency = 0;
}

double PaceControl::transfer(const RoundTimes& times, const WireChoice& wire) const {
  return with_other_bytes(times.transfer, limits_.latency, wire.element_bytes / limits_.wires.front().element_bytes);
}

/// The steps that it takes to hide an exchange.
double PaceControl::to_hide(const RoundTimes& times, const WireChoice& wire) const {
  return kMargin * transfer(times, wire) / times.step;
}

/// The first that makes short rounds possible. One that is in force stays unless it is clearly no longer that.
const WireChoice& PaceControl::wanted_wire(const std::vector<RoundTimes>& last, bool first) const {
  for (const WireChoice& wire : limits_.wires) {
    const bool in_force = !first && wire.wire == plan_.wire;
    if (in_force || first) {
      if (to_hide(typical_, wire) <= (in_force ? kTooSmall : 1) * kShortRound) return wire;
      continue;
    }
    double at_most = 0;
    for (const RoundTimes& t : last) at_most = std::max(at_most, to_hide(t, wire));
    if (at_most <= kTooLarge * kShortRound) return wire;
  }
  return limits_.wires.back();
}

Plan PaceControl::guess(const RoundTimes& times) {
  next(times);
  recent_.clear();
  return plan_;
}

Plan PaceControl::next(const RoundTimes& times) {
  if (!usable(times)) return plan_;
  const bool first = recent_.empty();
  recent_.push_back(times);
  if (recent_.size() > kForCost) recent_.pop_front();
  const auto last = [&](std::size_t rounds) {
    return recent_ | std::views::drop(recent_.size() - std::min(rounds, recent_.size()));
  };
  const auto typical = [&](double RoundTimes::*field, std::size_t rounds) {
    std::vector<double> values;
    for (const RoundTimes& t : last(rounds)) values.push_back(t.*field);
    return upper_median(std::move(values));
  };
  typical_ = {typical(&RoundTimes::step, kForHiding), typical(&RoundTimes::transfer, kForHiding),
              typical(&RoundTimes::cost, kForCost)};

  // Up as soon as the median says so; down only when the last rounds agree, so that times that jump to and fro come to
  // rest on the safe side.
  std::vector<RoundTimes> recently;
  for (const RoundTimes& t : last(kForHiding)) recently.push_back(t);
  const WireChoice& wire = wanted_wire(recently, first);
  const double to_afford = std::max(typical_.cost / (limits_.exchange_share * typical_.step), 1.0);
  const double typically = std::max(to_hide(typical_, wire), to_afford);
  double at_most = to_afford;
  for (const RoundTimes& t : recently) at_most = std::max(at_most, to_hide(t, wire));
  bounded_ = typically > limits_.max_local_steps;
  const bool too_small =
      to_hide(typical_, wire) > kTooSmall * plan_.local_steps || to_afford > kTooCostly * plan_.local_steps;
  const bool too_large = at_most < kTooLarge * plan_.local_steps;
  if (!first && !too_small && !too_large && wire.wire == plan_.wire) return plan_;

  const double wanted = too_large ? at_most : typically;
  const auto most = static_cast<double>(limits_.max_local_steps);
  const int local_steps = static_cast<int>(std::ceil(std::min(wanted, most)));
  plan_ = in_equal_parts(local_steps, wire.wire);
  return plan_;
}

/// A plan of about so many steps, in which all fragments have the same time on the wire: the shortest that so many of
/// them allow.
Plan PaceControl::in_equal_parts(int local_steps, Wire wire) const {
  const auto parts = [](int whole, int part) { return (whole + part - 1) / part; };
  if (limits_.fixed_fragments) {
    const int rounded = parts(local_steps, limits_.fragments) * limits_.fragments;
    const bool fits = rounded <= limits_.max_local_steps;
    return {fits ? rounded : std::max(local_steps, limits_.fragments), limits_.fragments, wire};
  }
  int most = std::min(limits_.fragments, local_steps);
  if (limits_.latency > 0) {
    const double affordable = kLatencyShare * local_steps * typical_.step / limits_.latency;
    most = std::max(static_cast<int>(std::min<double>(most, affordable)), 1);
  }
  const int delay = parts(local_steps, most);
  const int fragments = parts(local_steps, delay);
  return {std::min(fragments * delay, limits_.max_local_steps), fragments, wire};
}

namespace {
void visit_times(StateVisitor& visitor, const std::string& name, RoundTimes& times) {
  visit_amount(visitor, name + "/step", times.step);
  visit_amount(visitor, name + "/transfer", times.transfer);
  visit_amount(visitor, name + "/cost", times.cost);
}
}  // namespace

void PaceControl::visit(StateVisitor& visitor, const std::string& name) {
  const auto most = static_cast<std::size_t>(std::max(limits_.max_local_steps, plan_.local_steps));
  const auto whole = [&](const char* field, int& value) {
    value = static_cast<int>(visit_count(visitor, name + field, static_cast<std::size_t>(value), most));
    if (value == 0) refuse_damaged(name + field, value);
  };
  whole("/plan/local_steps", plan_.local_steps);
  whole("/plan/fragments", plan_.fragments);
  visit_wire(visitor, name + "/plan/wire", plan_.wire);
  recent_.resize(visit_count(visitor, name + "/recent", recent_.size(), kForCost));
  for (std::size_t i = 0; i < recent_.size(); ++i)
    visit_times(visitor, fmt::format("{}/recent/{}", name, i), recent_[i]);
  visit_times(visitor, name + "/typical", typical_);
  co2::visit(visitor, name + "/bounded", bounded_);
}

}  // namespace co2
