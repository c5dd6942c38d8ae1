#include "island/sharded_gradients.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>

#include <algorithm>

#include "base/best_fit.h"
#include "comm/transfer.h"
#include "flat/shaped_like.h"

namespace co2 {

ShardedGradients::ShardedGradients(const Island& island, const std::vector<Parameter>& trained,
                                   const FlatParameters& flat, const Shard& shard, const at::Tensor& live,
                                   int accumulation_steps, bool free_units, Witnesses witnesses, FirstFailure& failure,
                                   Trace& trace)
    : island_(island),
      accumulation_steps_(accumulation_steps),
      free_units_(free_units),
      failure_(failure),
      trace_(trace),
      vote_(island.inside_control(), std::move(witnesses), trace),
      averages_(at::zeros({shard.numel()}, live.options())),
      trained_(trained, flat, shard, live, averages_) {
  bytes_.add(bytes_of(averages_));
  for (const Range& range : flat.units()) {
    Unit unit;
    unit.flat = range;
    unit.mine = part_in_shard(range, flat.parts());
    units_.push_back(std::move(unit));
  }
  std::vector<at::Tensor> parameters;
  for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
    const Range where = flat.where(i);
    if (where.size() == 0) continue;
    Unit& unit = units_[flat.unit_of(i)];
    ++unit.slots;
    parameters.push_back(flat.parameters()[i]);
    slots_.push_back({.parameter = flat.parameters()[i],
                      .in_unit = {where.begin - unit.flat.begin, where.end - unit.flat.begin},
                      .unit = flat.unit_of(i)});
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const bool last = i + 1 == slots_.size() || slots_[i + 1].unit != slots_[i].unit;
    slots_[i].gap_end = last ? units_[slots_[i].unit].flat.size() : slots_[i + 1].in_unit.begin;
  }
  drop_gradients_of(parameters);  // from before: zero_grad() does not reach the model's any more
  hooks_ = std::make_unique<GradientHooks>(std::move(parameters), accumulation_steps, failure,
                                           [this](std::size_t slot, int pass) { on_gradient(slots_[slot], pass); });
}

ShardedGradients::~ShardedGradients() {
  hooks_.reset();
  for (const Unit& unit : units_) wait_out({unit.work});
}

void ShardedGradients::on_gradient(Slot& slot, int pass) {
  const bool leaves = free_units_ || pass == accumulation_steps_;
  const at::Tensor& gradient = slot.parameter.grad();
  if (!leaves && gradient.scalar_type() == averages_.scalar_type()) {
    if (slot.held == 0) bytes_.add(slot.held = bytes_of(gradient));
    return;
  }
  if (units_[slot.unit].journeys == cycles()) {
    throw OptionError(
        "backward has produced a gradient of a unit that it was past: use the parameters of a co2::UnitModule in its "
        "as_unit() only, once per pass");
  }
  fill(slot);
  if (got_gradient_) got_gradient_(slot.unit);
  if (!leaves) return;
  set_ready(slot);
  start_full_units();
}

void ShardedGradients::close(std::size_t unit, int passes) {
  if (units_[unit].journeys >= std::min(passes, cycles()) || units_[unit].ready == units_[unit].slots) return;
  fill_up(unit);
  start_full_units();
}

/// With zeros where there is no gradient, so that it can leave.
void ShardedGradients::fill_up(std::size_t unit) {
  for (Slot& slot : slots_) {
    if (slot.unit != unit || slot.ready) continue;
    fill(slot);
    set_ready(slot);
  }
}

/// Puts a worker's share of the average into the unit: dividing before the sum avoids overflow in narrow dtypes.
void ShardedGradients::fill(Slot& slot) {
  const at::NoGradGuard no_grad;
  Unit& unit = units_[slot.unit];
  bytes_.remove(std::exchange(slot.held, 0));
  if (!unit.buffer.defined()) {
    unit.memory = take_memory(unit.flat.size());
    unit.buffer = unit.memory.narrow(0, 0, unit.flat.size());
  }
  at::Tensor place = shaped_like(unit.buffer.narrow(0, slot.in_unit.begin, slot.in_unit.size()), slot.parameter);
  const at::Tensor& gradient = slot.parameter.grad();
  const double share = 1.0 / island_.size();
  if (!gradient.defined()) {
    if (!slot.filled) place.zero_();
  } else if (gradient.layout() != at::kStrided) {
    throw OptionError("sparse gradients can't be sharded: make the embedding dense (sparse = false)");
  } else if (slot.filled) {
    place.add_(gradient, share);  // another pass, before the unit could leave
  } else if (gradient.scalar_type() == place.scalar_type()) {
    at::mul_out(place, gradient, at::scalar_tensor(share, place.options()));
  } else {
    place.copy_(gradient);
    place.mul_(share);
  }
  slot.parameter.mutable_grad().reset();
  if (std::exchange(slot.filled, true)) return;
  if (slot.gap_end > slot.in_unit.end) unit.buffer.narrow(0, slot.in_unit.end, slot.gap_end - slot.in_unit.end).zero_();
}

void ShardedGradients::set_ready(Slot& slot) {
  if (!std::exchange(slot.ready, true)) ++units_[slot.unit].ready;
}

at::Tensor ShardedGradients::take_memory(std::int64_t elements) {
  auto kept = take_best_fit(
      idle_, elements, [](const at::Tensor& memory) { return memory.numel(); },
      [this](const at::Tensor& memory) { bytes_.remove(bytes_of(memory)); });
  if (kept) return *std::move(kept);
  at::Tensor memory = at::empty({elements}, averages_.options());
  bytes_.add(bytes_of(memory));
  return memory;
}

std::int64_t ShardedGradients::scratch_bytes(const Unit& unit) const {
  const auto bytes = unit.flat.size() * static_cast<std::int64_t>(averages_.element_size());
  return island_.inside() ? island_.inside()->reduce_scatter_scratch_bytes(bytes) : 0;
}

void ShardedGradients::start_full_units() {
  const std::size_t all = units_.size() * static_cast<std::size_t>(cycles());
  while (journeys_ < all && unit_of(journeys_).ready == unit_of(journeys_).slots) {
    if (journeys_ >= kUnderWay) collect(unit_of(journeys_ - kUnderWay));
    start(unit_of(journeys_));
    ++journeys_;
  }
}

void ShardedGradients::start(Unit& unit) {
  collect(unit);  // its former journey
  const bool first = journeys_ < units_.size();
  const at::Tensor place = averages_.narrow(0, unit.mine.begin, unit.mine.size());
  unit.part = first ? place : at::empty_like(place);
  unit.sending = unit.buffer;
  if (free_units_) {
    unit.sending_memory = std::exchange(unit.memory, at::Tensor());
    unit.buffer = at::Tensor();
  }
  if (island_.inside()) {
    unit.work = island_.inside()->reduce_scatter(unit.part, unit.sending, ReduceOp::kSum);
    scratch_bytes_.add(scratch_bytes(unit));
  } else {
    const at::NoGradGuard no_grad;
    unit.part.copy_(unit.sending);
  }
  unit.ready = 0;
  ++unit.journeys;
  for (Slot& slot : slots_) {
    if (&units_[slot.unit] == &unit) slot.ready = slot.filled = false;
  }
}

void ShardedGradients::collect(Unit& unit) {
  if (!unit.sending.defined()) return;
  if (unit.work) {
    wait_for_transfer({std::exchange(unit.work, nullptr)}, (island_.size() - 1) * bytes_of(unit.part), round_,
                      static_cast<int>(&unit - units_.data()), trace_);
    scratch_bytes_.remove(scratch_bytes(unit));
  }
  const at::NoGradGuard no_grad;
  const at::Tensor place = averages_.narrow(0, unit.mine.begin, unit.mine.size());
  if (unit.part.data_ptr() != place.data_ptr()) place.add_(unit.part);
  if (free_units_) idle_.push_back(std::exchange(unit.sending_memory, at::Tensor()));
  unit.sending = at::Tensor();
  unit.part = at::Tensor();
}

bool ShardedGradients::finish(std::int64_t round, Use use) {
  if (use == Use::kStep) hooks_->check_passes();
  return failure_.watch([&] { return complete(round, use); });
}

bool ShardedGradients::complete(std::int64_t round, Use use) {
  round_ = round;
  if (passes_over_) passes_over_();
  const std::size_t all = units_.size() * static_cast<std::size_t>(cycles());
  while (journeys_ < all) {
    fill_up(units_.size() - 1 - journeys_ % units_.size());
    start_full_units();
  }
  vote_.cast(use);
  for (Unit& unit : units_) {
    collect(unit);
    unit.journeys = 0;
  }
  hooks_->reset();
  journeys_ = 0;
  drop_gradients_of(hooks_->parameters());  // of a backward pass that has thrown
  const bool step = vote_.all_step(round);
  step ? trained_.give_gradients() : trained_.drop_gradients();
  return step;
}

}  // namespace co2
