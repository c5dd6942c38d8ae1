#include "shard/sharded_gradients.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "flat/shard.h"
#include "comm/transfer.h"

namespace co2 {

class ShardedGradients::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(ShardedGradients& gradients, std::size_t slot) : gradients_(gradients), slot_(slot) {}
  void operator()(const torch::autograd::Variable&) override { gradients_.on_gradient(gradients_.slots_[slot_]); }

 private:
  ShardedGradients& gradients_;
  std::size_t slot_;
};

ShardedGradients::ShardedGradients(const Island& island, const FlatParameters& flat, const at::TensorOptions& like,
                                   int accumulation_steps, bool free_units, Trace& trace)
    : island_(island),
      flat_(flat),
      accumulation_steps_(accumulation_steps),
      free_units_(free_units),
      trace_(trace),
      shard_(at::zeros({flat.numel() / flat.parts()}, like)) {
  std::int64_t local = 0;
  for (const Range& range : flat.units()) {
    Unit unit;
    unit.flat = range;
    unit.shard = {local, local + range.size() / flat.parts()};
    local = unit.shard.end;
    units_.push_back(std::move(unit));
  }
  for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
    const Range where = flat.where(i);
    if (where.size() == 0) continue;
    const auto unit =
        std::find_if(units_.begin(), units_.end(), [&](const Unit& u) { return where.begin < u.flat.end; });
    ++unit->slots;
    slots_.push_back({.parameter = flat.parameters()[i],
                      .in_unit = {where.begin - unit->flat.begin, where.end - unit->flat.begin},
                      .unit = static_cast<std::size_t>(unit - units_.begin())});
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const bool last = i + 1 == slots_.size() || slots_[i + 1].unit != slots_[i].unit;
    slots_[i].gap_end = last ? units_[slots_[i].unit].flat.size() : slots_[i + 1].in_unit.begin;
    torch::autograd::impl::set_post_acc_grad_hooks(slots_[i].parameter, std::make_unique<Hook>(*this, i));
  }
}

ShardedGradients::~ShardedGradients() {
  for (const Slot& slot : slots_) torch::autograd::impl::set_post_acc_grad_hooks(slot.parameter, nullptr);
  for (const Unit& unit : units_) wait_out({unit.work});
}

void ShardedGradients::on_gradient(Slot& slot) {
  if (++slot.passes > accumulation_steps_) {
    throw OptionError(
        "backward ran more often than accumulation_steps says before step(): set accumulation_steps to the number of "
        "backward passes per step");
  }
  if (!free_units_ && slot.passes < accumulation_steps_) {
    if (slot.passes == 1) hold(static_cast<std::int64_t>(slot.parameter.grad().nbytes()));
    return;
  }
  if (!free_units_ && slot.passes > 1) bytes_ -= static_cast<std::int64_t>(slot.parameter.grad().nbytes());
  fill(slot);
  start_full_units();
}

/// Puts a worker's share of the average into the unit: dividing before the sum avoids overflow in narrow dtypes.
void ShardedGradients::fill(Slot& slot) {
  const at::NoGradGuard no_grad;
  Unit& unit = units_[slot.unit];
  if (!unit.buffer.defined()) {
    unit.memory = take_memory(unit.flat.size());
    unit.buffer = unit.memory.narrow(0, 0, unit.flat.size());
  }
  at::Tensor place = unit.buffer.narrow(0, slot.in_unit.begin, slot.in_unit.size());
  const at::Tensor& gradient = slot.parameter.grad();
  const double share = 1.0 / island_.size();
  if (!gradient.defined()) {
    if (!slot.ready) place.zero_();
  } else if (gradient.layout() != at::kStrided) {
    throw OptionError("sparse gradients can't be sharded: make the embedding dense (sparse = false)");
  } else if (slot.ready) {
    place.add_(gradient.reshape({-1}), share);  // another pass, before the unit could leave
  } else if (gradient.scalar_type() == place.scalar_type()) {
    at::mul_out(place, gradient.reshape({-1}), at::scalar_tensor(share, place.options()));
  } else {
    place.copy_(gradient.reshape({-1}));
    place.mul_(share);
  }
  slot.parameter.mutable_grad().reset();
  if (slot.ready) return;
  slot.ready = true;
  if (slot.gap_end > slot.in_unit.end) unit.buffer.narrow(0, slot.in_unit.end, slot.gap_end - slot.in_unit.end).zero_();
  if (++unit.ready == unit.slots && on_unit_full_) on_unit_full_(slot.unit);
}

void ShardedGradients::hold(std::int64_t bytes) {
  bytes_ += bytes;
  most_bytes_ = std::max(most_bytes_, bytes_);
}

/// The smallest that fits. If there is none, one that does not is given up, so that there are never more of them than
/// units at once.
at::Tensor ShardedGradients::take_memory(std::int64_t elements) {
  std::sort(idle_.begin(), idle_.end(), [](const auto& a, const auto& b) { return a.numel() < b.numel(); });
  auto fits = std::find_if(idle_.begin(), idle_.end(), [&](const auto& memory) { return memory.numel() >= elements; });
  if (fits != idle_.end()) {
    at::Tensor memory = std::move(*fits);
    idle_.erase(fits);
    return memory;
  }
  if (!idle_.empty()) {
    bytes_ -= static_cast<std::int64_t>(idle_.back().nbytes());
    idle_.pop_back();
  }
  at::Tensor memory = at::empty({elements}, shard_.options());
  hold(static_cast<std::int64_t>(memory.nbytes()));
  return memory;
}

std::int64_t ShardedGradients::scratch_bytes(const Unit& unit) const {
  const auto bytes = unit.flat.size() * static_cast<std::int64_t>(shard_.element_size());
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
  const at::Tensor place = shard_.narrow(0, unit.shard.begin, unit.shard.size());
  unit.part = first ? place : at::empty_like(place);
  unit.sending = unit.buffer;
  if (free_units_) {
    unit.sending_memory = std::exchange(unit.memory, at::Tensor());
    unit.buffer = at::Tensor();
  }
  if (island_.inside()) {
    unit.work = island_.inside()->reduce_scatter(unit.part, unit.sending, ReduceOp::kSum);
    scratch_bytes_ += scratch_bytes(unit);
    most_scratch_bytes_ = std::max(most_scratch_bytes_, scratch_bytes_);
  } else {
    const at::NoGradGuard no_grad;
    unit.part.copy_(unit.sending);
  }
  unit.ready = 0;
  for (Slot& slot : slots_) {
    if (&units_[slot.unit] == &unit) slot.ready = false;
  }
}

void ShardedGradients::collect(Unit& unit) {
  if (!unit.sending.defined()) return;
  if (unit.work) {
    const auto part_bytes = static_cast<std::int64_t>(unit.part.nbytes());
    wait_for_transfer({std::exchange(unit.work, nullptr)}, (island_.size() - 1) * part_bytes, round_,
                      static_cast<int>(&unit - units_.data()), trace_);
    scratch_bytes_ -= scratch_bytes(unit);
  }
  const at::NoGradGuard no_grad;
  const at::Tensor place = shard_.narrow(0, unit.shard.begin, unit.shard.size());
  if (unit.part.data_ptr() != place.data_ptr()) place.add_(unit.part);
  if (free_units_) idle_.push_back(std::exchange(unit.sending_memory, at::Tensor()));
  unit.sending = at::Tensor();
  unit.part = at::Tensor();
}

void ShardedGradients::finish(std::int64_t round) {
  round_ = round;
  const std::size_t all = units_.size() * static_cast<std::size_t>(cycles());
  while (journeys_ < all) {
    Unit& next = unit_of(journeys_);
    for (Slot& slot : slots_) {
      if (&units_[slot.unit] == &next && !slot.ready) fill(slot);
    }
    start_full_units();
  }
  for (Unit& unit : units_) collect(unit);
  for (Slot& slot : slots_) slot.passes = 0;
  journeys_ = 0;
}

}  // namespace co2
