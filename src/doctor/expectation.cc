#include "doctor/expectation.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>

#include "lab/rate.h"
#include "options/recipe.h"
#include "options/wires.h"
#include "outer/wire_dtype.h"

namespace co2::doctor {

namespace {

constexpr double kBytes = 4;          // of a parameter: float32
constexpr double kLasting = 6;        // parameters, gradients, Adam's two moments, consensus, momentum
constexpr double kInFlight = 2;       // for the fragment on the wire: the message, and what was sent
constexpr double kBackward = 2. / 3;  // of a step: what gradients can hide behind

double divided(double a, double b) { return b > 0 ? a / b : 0; }

/// With the wire that was asked for, unless this strategy refuses it: then nobody could train so.
Recipe recipe_of(Strategy strategy, Wire asked) {
  try {
    return resolve({.strategy = strategy, .wire = asked});
  } catch (const OptionError&) {
    return resolve({.strategy = strategy});
  }
}

}  // namespace

Recommendation recommend(const Situation& s, const Recipe& recipe) {
  const PaceLimits limits{.wires = wire_choices(recipe, at::kFloat),
                          .max_local_steps = recipe.max_local_steps,
                          .fragments = recipe.fragments,
                          .fixed_fragments = recipe.fixed_fragments,
                          .exchange_share = recipe.exchange_share,
                          .latency = s.latency};
  PaceControl control(limits, {recipe.local_steps, recipe.fragments, recipe.wire});
  const double cost = s.outer + s.cycles;
  Recommendation result;
  result.plan = control.next({.step = s.step, .transfer = s.transfer, .cost = cost});
  result.bounded = control.bounded();
  const double longest = control.longest_hidden_transfer();
  result.transfer = control.transfer();
  if (result.transfer > longest) {
    const double share = wire_element_bytes(result.plan.wire, at::kFloat) / limits.wires.front().element_bytes;
    result.bits_per_second_needed = divided(8.0 * share * static_cast<double>(s.wire_bytes), longest);
  }
  result.cost_share = divided(cost, result.plan.local_steps * s.step);
  return result;
}

std::string in_words(const Recommendation& r, const Situation& s, const Recipe& recipe) {
  const double round = r.plan.local_steps * s.step;
  std::string text = fmt::format("--local-steps {}, {} fragment{}, --wire {}: ", r.plan.local_steps, r.plan.fragments,
                                 r.plan.fragments == 1 ? "" : "s", name(r.plan.wire));
  if (!r.bounded) {
    return text + fmt::format("the transfer takes {:.0f} % of a round, exchanges cost {:.1f} % of the time",
                              100 * divided(r.transfer, round), 100 * r.cost_share);
  }
  text += fmt::format("the highest allowed (--max-local-steps {}), and too few. ", recipe.max_local_steps);
  if (r.bits_per_second_needed > 0) {
    return text + fmt::format(
                      "To hide the transfer they would need {}, this network gives {}. Raise "
                      "--max-local-steps, take --wire int2 or a larger --batch",
                      lab::format_rate(r.bits_per_second_needed),
                      lab::format_rate(divided(8.0 * static_cast<double>(s.wire_bytes), s.transfer)));
  }
  return text + fmt::format(
                    "Exchanges will cost {:.1f} % of the time instead of {:.1f} % (--exchange-share {}). Raise "
                    "--max-local-steps, or leave the network a core of its own",
                    100 * r.cost_share, 100 * recipe.exchange_share, recipe.exchange_share);
}

std::vector<Expectation> expect(const Situation& s, const Plan& plan, Wire asked) {
  const double all = s.workers * s.units_per_step;
  const double computing = plan.local_steps * s.step;
  const auto speed = [&](Strategy strategy) {
    const Recipe recipe = recipe_of(strategy, asked);
    switch (recipe.exchange) {
      case Recipe::Exchange::kNothing: return divided(all, s.step);
      case Recipe::Exchange::kGradients:
        return divided(all, s.step + std::max(s.plain_cycles, s.plain_transfer - kBackward * s.step));
      case Recipe::Exchange::kProgress: break;
    }
    const double share = wire_element_bytes(recipe.adaptive_wire ? plan.wire : recipe.wire, at::kFloat) / kBytes;
    const double transfer = s.latency + share * std::max(s.plain_transfer - s.latency, 0.0);
    // Who waits for a transfer has nothing else to do with the cycles that it takes.
    const bool blocking = recipe.delay == 0;
    const double round =
        blocking ? computing + transfer + s.outer : std::max(computing, transfer) + s.outer + share * s.plain_cycles;
    return divided(all * plan.local_steps, round);
  };
  const double none = speed(Strategy::kNone);
  std::vector<Expectation> result;
  for (const Strategy strategy : all_strategies()) {
    const double units = speed(strategy);
    result.push_back({strategy, units, divided(units, none)});
  }
  return result;
}

MemoryNeed memory_need(std::int64_t parameters, const Plan& plan, int workers, double peak_bytes) {
  const double copy = kBytes * static_cast<double>(parameters);
  const double measured_state = (kLasting + kInFlight) * copy;
  double lasting = kLasting;
  double in_flight = kInFlight;
  if (workers > 1 && in_blocks(plan.wire)) {  // what rounding leaves behind; sent, to add up, the sum, and all sums
    lasting += 1;
    in_flight = (3 + 1.0 / workers) * wire_element_bytes(plan.wire, at::kFloat) / kBytes;
  }
  return {(lasting + in_flight / std::max(plan.fragments, 1)) * copy, std::max(peak_bytes - measured_state, 0.0)};
}

double least_memory(std::int64_t parameters) { return kLasting * kBytes * static_cast<double>(parameters); }

}  // namespace co2::doctor
