#include "island/parameter_units.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "comm/transfer.h"
#include "flat/shard.h"
#include "trace/bytes.h"

namespace co2 {

namespace {

/// The same memory as another tensor, so that writing to it does not look to autograd like a change of the parameters.
at::Tensor same_memory(const at::Tensor& storage) {
  return at::from_blob(storage.mutable_data_ptr(), storage.sizes(), storage.options());
}

}  // namespace

class ParameterUnits::Keeper final : public UnitKeeper {
 public:
  Keeper(ParameterUnits& units, std::size_t unit) : units_(units), unit_(unit) {}
  void before_forward() override { units_.before_forward(unit_); }
  at::Tensor after_forward(at::Tensor output) override { return units_.after_forward(unit_, std::move(output)); }

 private:
  ParameterUnits& units_;
  std::size_t unit_;
};

ParameterUnits::ParameterUnits(const Island& island, FlatParameters& flat, const at::Tensor& live,
                               at::ScalarType compute, const std::vector<ParameterUnit>& modules, FirstFailure& failure,
                               Trace& trace)
    : island_(island),
      flat_(flat),
      group_(island.another_inside("units")),
      compute_(compute),
      failure_(failure),
      trace_(trace),
      live_(live),
      source_(live_),
      memory_(live.device()),
      modules_(modules),
      tour_(flat.units().size() - modules.size(), flat.units().size()) {
  const std::size_t first_module = flat.units().size() - modules.size();
  for (std::size_t u = 0; u < flat.units().size(); ++u) {
    Unit unit;
    unit.part = part_in_shard(flat.units()[u], flat.parts());
    unit.stays = u < first_module;
    units_.push_back(std::move(unit));
  }
  for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
    if (flat.where(i).size() > 0) ++units_[flat.unit_of(i)].parameters;
  }
  for (std::size_t u = first_module; u < units_.size(); ++u) {
    modules[u - first_module].keep(std::make_shared<Keeper>(*this, u));
  }
  allocate(compute_);
  gather_from(live_, 0, compute_, /*whole=*/false);
}

/// Gives every unit a storage, and makes the parameters views of it, which only works while there is memory in it.
void ParameterUnits::allocate(at::ScalarType dtype) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = units_[u];
    unit.storage = at::empty({unit.part.size() * island_.size()}, live_.options().dtype(dtype));
    flat_.point_to_unit(u, unit.storage);
    release_memory(unit.storage);
  }
}

ParameterUnits::~ParameterUnits() {
  for (const ParameterUnit& module : modules_) module.keep(nullptr);
  for (const Unit& unit : units_) wait_out({unit.work});
}

/// Starts to gather a unit, which must not be here.
void ParameterUnits::gather(std::size_t u) {
  Unit& unit = units_[u];
  memory_.give(unit.storage, unit.part.size() * island_.size() * unit.storage.element_size());
  if (!finished_) most_bytes_ = std::max(most_bytes_, bytes_of(live_) + memory_.bytes());
  const at::NoGradGuard no_grad;
  const at::Tensor whole = same_memory(unit.storage);
  const at::Tensor mine = whole.narrow(0, island_.rank() * unit.part.size(), unit.part.size());
  mine.copy_(source_.narrow(0, unit.part.begin, unit.part.size()));
  unit.here = true;
  unit.work = group_->all_gather(whole, mine);
}

/// Waits until a unit that is being gathered has arrived.
void ParameterUnits::bring(std::size_t u) {
  Unit& unit = units_[u];
  if (!unit.work) return;
  const std::int64_t sent = unit.part.size() * (island_.size() - 1) * unit.storage.element_size();
  wait_for_transfer({unit.work}, sent, round_, static_cast<int>(u), trace_);
  unit.work = nullptr;
}

void ParameterUnits::free(std::size_t u) {
  Unit& unit = units_[u];
  if (!unit.here) return;
  bring(u);
  memory_.take_back(unit.storage);
  unit.here = false;
}

void ParameterUnits::gather_next() {
  const auto next = tour_.next();
  if (!next) return;
  gather(*next);
  tour_.advance();
}

/// Gathers what comes before a unit in this leg, and the unit itself.
void ParameterUnits::visit(std::size_t u) {
  while (!tour_.visited(u)) gather_next();
  tour_.use(u);
}

/// Gathers what others may want of this leg. `use`: see let_go_before().
void ParameterUnits::complete_leg(std::int64_t use) {
  while (const auto next = tour_.next()) {
    gather_next();
    const bool backward = tour_.leg() == Tour::Leg::kBackward;
    if (backward) let_go_before(*next, use);
    // The last unit of forward is the first that backward needs.
    if (backward || !training_ || *next != tour_.order().back()) free(*next);
  }
}

void ParameterUnits::begin_forward() {
  complete_leg(0);
  if (tour_.leg() == Tour::Leg::kBackward && on_passed_) {
    for (std::size_t u = units_.size(); u-- > 0;) on_passed_(u, passes_);
  }
  for (const std::size_t u : tour_.order()) free(u);
  training_ = false;
  tour_.begin(Tour::Leg::kForward);
}

void ParameterUnits::begin_backward(std::int64_t use) {
  complete_leg(use);
  const bool has_last = tour_.leg() == Tour::Leg::kForward && training_;
  for (const std::size_t u : tour_.order()) {
    if (!has_last || u != tour_.order().back()) free(u);
  }
  tour_.begin(Tour::Leg::kBackward, has_last);
  leg_counted_ = false;
}

/// Backward has come to `u`, in its forward use number `use`: lets go of the gradients of units that it has passed.
void ParameterUnits::let_go_before(std::size_t u, std::int64_t use) {
  if (!on_passed_) return;
  for (const std::size_t passed : tour_.before(u)) {
    if (!may_get_gradients(passed, use)) on_passed_(passed, leg_counted_ ? passes_ : passes_ + 1);
  }
}

/// Backward goes from the last use to the first, so those before `use` are still to come. A unit that it went through
/// without producing a gradient may get some later too: this may have been autograd::grad(), for the input's sake.
bool ParameterUnits::may_get_gradients(std::size_t u, std::int64_t use) const {
  const Unit& unit = units_[u];
  if (std::any_of(unit.uses.begin(), unit.uses.end(), [&](std::int64_t other) { return other < use; })) return true;
  return tour_.used(u) && unit.awaited == unit.parameters;
}

void ParameterUnits::before_forward(std::size_t u) {
  if (whole_) return;
  failure_.watch([&] {
    if (tour_.leg() != Tour::Leg::kForward || tour_.used(u)) begin_forward();
    if (at::GradMode::is_enabled()) {
      training_ = true;
      if (!order_agreed_ && std::find(used_first_.begin(), used_first_.end(), u) == used_first_.end()) {
        used_first_.push_back(u);
      }
    }
    visit(u);
    bring(u);
    gather_next();
  });
}

at::Tensor ParameterUnits::after_forward(std::size_t u, at::Tensor output) {
  if (whole_) return output;
  if (!training_ || u != tour_.order().back()) failure_.watch([&] { free(u); });
  if (at::GradMode::is_enabled() && output.requires_grad()) {
    const std::int64_t use = ++uses_;
    units_[u].uses.push_back(use);
    output.register_hook([this, u, use](const at::Tensor&) { before_backward(u, use); });
  }
  return output;
}

void ParameterUnits::before_backward(std::size_t u, std::int64_t use) {
  if (whole_) return;
  failure_.watch([&] {
    std::erase(units_[u].uses, use);
    if (tour_.leg() != Tour::Leg::kBackward || tour_.used(u)) begin_backward(use);
    visit(u);
    if (!at::GradMode::is_enabled()) let_go_before(u, use);  // with it, this is no backward() of a step
    bring(u);
    units_[u].awaited = units_[u].parameters;
    gather_next();
  });
}

void ParameterUnits::got_gradient(std::size_t u) {
  if (units_[u].stays || whole_) return;
  if (!std::exchange(leg_counted_, true)) ++passes_;
  if (units_[u].awaited == 0) return;
  if (--units_[u].awaited == 0) free(u);
}

void ParameterUnits::passes_over(int passes) {
  if (!whole_) {
    const bool backward_is_missing = tour_.leg() == Tour::Leg::kForward && training_;
    if (!backward_is_missing) complete_leg(0);
    while (passes_ < passes) join_pass();
  }
  passes_ = 0;
  for (Unit& unit : units_) unit.uses.clear();
}

/// Takes part in a pass of others, or in what is left of it.
void ParameterUnits::join_pass() {
  if (tour_.leg() != Tour::Leg::kForward || !training_) begin_forward();
  training_ = true;
  begin_backward(0);
  ++passes_;
  leg_counted_ = true;
  complete_leg(0);
}

/// Rank 0's order of use, as soon as it has one.
void ParameterUnits::agree_on_order() {
  std::vector<std::int64_t> order(tour_.order().size() + 1, 0);
  order[0] = static_cast<std::int64_t>(used_first_.size());
  std::copy(used_first_.begin(), used_first_.end(), order.begin() + 1);
  const at::Tensor agreed = at::tensor(order, at::kLong);
  island_.inside_control()->broadcast(agreed, 0)->wait();
  const std::int64_t* values = agreed.const_data_ptr<std::int64_t>();
  if (values[0] == 0) return;
  tour_.reorder({values + 1, values + 1 + values[0]});
  order_agreed_ = true;
  used_first_.clear();
}

/// Lets forward see the values of a shard: from now on, units are gathered from there. The `whole` model stays here, or
/// only what belongs to no module.
void ParameterUnits::gather_from(const at::Tensor& shard, std::int64_t round, at::ScalarType dtype, bool whole) {
  complete_leg(0);
  tour_.begin(Tour::Leg::kNone);
  round_ = round;
  source_ = shard;
  for (std::size_t u = 0; u < units_.size(); ++u) free(u);
  const bool other_sizes = whole_ != whole || this->dtype() != dtype;
  if (other_sizes) memory_.trim();
  if (this->dtype() != dtype) allocate(dtype);
  whole_ = whole;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (whole || units_[u].stays) gather(u);
  }
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (whole || units_[u].stays) bring(u);
  }
}

void ParameterUnits::changed(const std::vector<Range>& /*parts*/, std::int64_t round) {
  finished_ = false;
  gather_from(live_, round, compute_, /*whole=*/false);
  if (!order_agreed_) agree_on_order();
}

void ParameterUnits::finish(const std::vector<Range>& /*parts*/, std::int64_t round, bool whole) {
  finished_ = true;
  gather_from(live_, round, live_.scalar_type(), whole);
}

void ParameterUnits::with_values(const at::Tensor& shard, std::int64_t round, const std::function<void()>& body) {
  const auto restore = [&, was_whole = whole_] { finished_ ? finish({}, round, was_whole) : changed({}, round); };
  gather_from(shard, round, compute_, /*whole=*/false);
  try {
    body();
  } catch (...) {
    try {
      restore();
    } catch (...) {  // what went wrong first is what to tell
    }
    throw;
  }
  restore();
}

}  // namespace co2
