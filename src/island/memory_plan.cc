#include "island/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "island/placed.h"
#include "island/sharded_gradients.h"
#include "options/wires.h"
#include "outer/wire_dtype.h"

namespace co2 {

namespace {

constexpr std::int64_t kElementBytes = sizeof(float);
constexpr std::int64_t kMomentBytes = 4;  // of a second moment on the wire

/// Elements of each unit that gradients travel in, and parameters at ZeRO 3: as FlatParameters lays them out.
struct Units {
  std::vector<std::int64_t> stay;     ///< parameters that belong to no UnitModule, cut by size
  std::vector<std::int64_t> modules;  ///< UnitModules
};

Units units_of(const ModelShape& shape, const Recipe& recipe) {
  Units units;
  const std::int64_t unit_bytes = island_unit_bytes(kElementBytes * shape.elements(), recipe.bucket_bytes);
  std::int64_t open = 0;
  for (const auto& [elements, unit] : shape.parameters) {
    if (unit) {
      units.modules.resize(std::max(units.modules.size(), *unit + 1));
      units.modules[*unit] += elements;
      continue;
    }
    open += elements;
    if (open * kElementBytes >= unit_bytes) units.stay.push_back(std::exchange(open, 0));
  }
  if (open > 0) units.stay.push_back(open);
  return units;
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

/// The most that so many neighbours have together.
std::int64_t most_in_a_row(const std::vector<std::int64_t>& values, std::size_t count) {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t together = 0;
    for (std::size_t j = i; j < std::min(i + count, values.size()); ++j) together += values[j];
    most = std::max(most, together);
  }
  return most;
}

/// How many fragments are in flight at once.
std::int64_t exchanges_in_flight(const Recipe& recipe) {
  const bool launches_first = recipe.restart == Restart::kPaper;  // and applies then: one more is there for a moment
  if (recipe.delay == 0) return 1;
  if (!recipe.delay) return launches_first ? 2 : 1;
  const double interval = static_cast<double>(recipe.local_steps) / recipe.fragments;
  return static_cast<std::int64_t>(std::ceil(*recipe.delay / interval)) + (launches_first ? 1 : 0);
}

bool agrees_on_moments(const Recipe& recipe, int islands) { return recipe.agree_moments > 0 && islands > 1; }

Wire wire_between(const Recipe& recipe, int islands) { return islands == 1 ? Wire::kPlain : recipe.wire; }

/// Of an element, to remember what it was sent as: blocks are kept as they went out.
double sent_bytes(const Recipe& recipe, Wire wire) {
  if (recipe.restart != Restart::kKeep) return 0;
  return in_blocks(wire) ? wire_element_bytes(wire, at::kFloat) : kElementBytes;
}

std::int64_t plan_parameters(const ModelShape& shape, const Recipe& recipe, const Units& units) {
  const std::int64_t all = shape.elements();
  const std::int64_t here_bytes = recipe.compute == Compute::kBfloat16 ? 2 : kElementBytes;
  const std::int64_t shard = all / recipe.island_size * kElementBytes;
  if (recipe.zero == 3) return shard + here_bytes * (sum(units.stay) + most_in_a_row(units.modules, 2));
  return here_bytes * all + (recipe.compute == Compute::kBfloat16 ? shard : 0);
}

std::int64_t plan_gradients(const ModelShape& shape, const Recipe& recipe, const Units& units) {
  const std::int64_t all = shape.elements();
  // Gradients in fewer digits than their average must not add up where backward puts them.
  const bool adds_up_outside = recipe.accumulation_steps > 1 && recipe.compute == Compute::kPlain;
  if (!trains_shard(recipe)) return kElementBytes * all * (recipe.island_size > 1 && adds_up_outside ? 2 : 1);
  const std::int64_t shard = kElementBytes * (all / recipe.island_size);
  if (recipe.zero < 2) return shard + kElementBytes * all * (adds_up_outside ? 2 : 1);
  // Units that stay hold what is used first and last, so they are full only when backward is over. The others take
  // turns in buffers that fit the largest.
  const std::int64_t at_once = ShardedGradients::kUnderWay + 1;
  const std::int64_t whole = units.modules.empty() ? at_once * most_in_a_row(units.stay, 1)
                                                   : sum(units.stay) + at_once * most_in_a_row(units.modules, 1);
  return shard + kElementBytes * whole;
}

}  // namespace

std::int64_t ModelShape::elements() const {
  std::int64_t total = 0;
  for (const Parameter& parameter : parameters) total += parameter.elements;
  return total;
}

MemoryUse plan_memory(const ModelShape& shape, const Recipe& recipe, int state_copies, int workers) {
  const Units units = units_of(shape, recipe);
  const std::int64_t shard = shape.elements() / recipe.island_size;
  MemoryUse use;
  use.parameters = plan_parameters(shape, recipe, units);
  use.gradients = plan_gradients(shape, recipe, units);
  use.inner_state = kElementBytes * state_copies * (recipe.zero > 0 ? shard : shape.elements());
  if (recipe.exchange == Recipe::Exchange::kProgress) {
    use.outer_state = kElementBytes * (recipe.eager ? 4 : 2) * shard;
    const int islands = workers / recipe.island_size;
    const Wire wire = wire_between(recipe, islands);
    double wire_bytes = wire_element_bytes(wire, at::kFloat);
    if (in_blocks(wire)) {
      use.outer_state += kElementBytes * shard;  // what rounding the sums has left behind
      wire_bytes *= 2 + 1.0 / islands;           // what comes to be added up, the sum, and everybody's sums
    }
    const std::int64_t elements = exchanges_in_flight(recipe) * shard / recipe.fragments;
    use.communication = std::llround((wire_bytes + sent_bytes(recipe, wire)) * static_cast<double>(elements));
    if (agrees_on_moments(recipe, islands))
      use.communication += 2 * kMomentBytes * shard;  // what was sent, and the sum
  }
  if (recipe.zero > 0) {
    std::vector<std::int64_t> travelling = units.stay;
    travelling.insert(travelling.end(), units.modules.begin(), units.modules.end());
    use.communication += kElementBytes * most_in_a_row(travelling, ShardedGradients::kUnderWay);
  }
  return use;
}

std::int64_t plan_checkpoint(const ModelShape& shape, const Recipe& recipe, int state_copies, int workers) {
  const MemoryUse use = plan_memory(shape, recipe, state_copies, workers);
  const std::int64_t shard = shape.elements() / recipe.island_size;
  const bool whole = recipe.zero < 3 && recipe.compute == Compute::kPlain;
  std::int64_t bytes = kElementBytes * (whole ? shape.elements() : shard) + use.inner_state + use.outer_state;
  if (recipe.exchange == Recipe::Exchange::kProgress && recipe.delay != 0) {  // sums, and what was sent for them
    const bool launches_first = recipe.restart == Restart::kPaper;
    const std::int64_t in_flight = exchanges_in_flight(recipe) - (launches_first ? 1 : 0);
    const Wire wire = wire_between(recipe, workers / recipe.island_size);
    const double element = wire_element_bytes(wire, at::kFloat) + sent_bytes(recipe, wire);
    bytes += std::llround(element * static_cast<double>(in_flight * shard / recipe.fragments));
    if (agrees_on_moments(recipe, workers / recipe.island_size)) bytes += 2 * kMomentBytes * shard;
  }
  return bytes;
}

std::int64_t plan_resident(const MemoryUse& use) {
  // docs/zero.md has the measurements.
  constexpr double kKept = 1.2;
  constexpr double kProgram = 160e6;
  return std::llround(kKept * static_cast<double>(use.total()) + kProgram);
}

Traffic plan_traffic(const ModelShape& shape, const Recipe& recipe, int workers) {
  const auto all = static_cast<double>(shape.elements());
  const double island = recipe.island_size;
  const double to_others = (island - 1) / island;
  const double here_bytes = recipe.compute == Compute::kBfloat16 ? 2 : kElementBytes;
  Traffic traffic;
  if (recipe.zero == 0) {
    traffic.island = 2 * to_others * all * kElementBytes;  // an all-reduce of the gradients
  } else {
    // A reduce-scatter of gradients, and parameters: all of them after the step, or, at ZeRO 3, units twice in every
    // backward pass, and the others after the step.
    const double passes = recipe.accumulation_steps;
    const double scatters = recipe.zero >= 2 ? passes : 1;
    double gathered = all;
    if (recipe.zero == 3) {
      const Units units = units_of(shape, recipe);
      // The last unit of forward is the first of backward, and stays for it.
      const auto last = static_cast<double>(units.modules.empty() ? 0 : units.modules.back());
      gathered = static_cast<double>(sum(units.stay)) + passes * (2 * static_cast<double>(sum(units.modules)) - last);
    }
    traffic.island = to_others * (scatters * all * kElementBytes + gathered * here_bytes);
  }
  if (recipe.exchange == Recipe::Exchange::kProgress) {
    const double islands = workers / island;
    const double wire_bytes = wire_element_bytes(recipe.wire, at::kFloat);
    traffic.across = 2 * (islands - 1) / islands * wire_bytes * all / island / recipe.local_steps;
    if (recipe.agree_moments > 0) {
      traffic.across += 2 * (islands - 1) / islands * kMomentBytes * all / island / recipe.agree_moments;
    }
    // What an exchange changes in a shard is shown to the island, where the step does not do that anyway.
    if (recipe.zero == 0) traffic.island += to_others * all * kElementBytes / recipe.local_steps;
  }
  return traffic;
}

}  // namespace co2
