#include "island/parameter_units.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/Resize.h>

#include <algorithm>

#include "comm/transfer.h"

namespace co2 {

namespace {

void resize_memory(const at::Tensor& storage, std::int64_t bytes) {
  at::native::resize_bytes_nocuda(storage.storage(), bytes);
}

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

ParameterUnits::ParameterUnits(const Island& island, FlatParameters& flat, const Shard& shard, at::ScalarType compute,
                               const std::vector<UnitModule*>& modules, Trace& trace)
    : island_(island),
      flat_(flat),
      compute_(compute),
      trace_(trace),
      live_(shard.copy_of(flat.data())),
      source_(live_),
      modules_(modules) {
  bytes_.add(bytes_of(live_));
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
    modules[u - first_module]->set_unit_keeper(std::make_shared<Keeper>(*this, u));
    // A guess, until the first forward shows the order.
    if (u > first_module) units_[u].before = u - 1;
    if (u + 1 < units_.size()) units_[u].after = u + 1;
  }
  allocate(compute_);
  gather_from(live_, 0, /*whole=*/false);
}

/// Gives every unit a storage, and makes the parameters views of it, which only works while there is memory in it (that
/// nobody has touched yet).
void ParameterUnits::allocate(at::ScalarType dtype) {
  std::vector<at::Tensor> storages;
  for (Unit& unit : units_) {
    unit.storage = at::empty({unit.part.size() * island_.size()}, live_.options().dtype(dtype));
    storages.push_back(unit.storage);
  }
  flat_.point_to_units(storages);
  for (const at::Tensor& storage : storages) resize_memory(storage, 0);
}

ParameterUnits::~ParameterUnits() {
  for (UnitModule* module : modules_) module->set_unit_keeper(nullptr);
  for (const Unit& unit : units_) wait_out({unit.work});
}

/// Starts to gather a unit.
void ParameterUnits::fetch(std::size_t u) {
  Unit& unit = units_[u];
  if (unit.here || unit.work) return;
  const std::int64_t bytes = unit.part.size() * island_.size() * unit.storage.element_size();
  resize_memory(unit.storage, bytes);
  bytes_.add(bytes);
  const at::NoGradGuard no_grad;
  const at::Tensor whole = same_memory(unit.storage);
  const at::Tensor mine = whole.narrow(0, island_.rank() * unit.part.size(), unit.part.size());
  mine.copy_(source_.narrow(0, unit.part.begin, unit.part.size()));
  unit.work = island_.inside()->all_gather(whole, mine);
}

/// Waits until a unit is here.
void ParameterUnits::bring(std::size_t u) {
  fetch(u);
  Unit& unit = units_[u];
  if (!unit.work) return;
  const std::int64_t sent = unit.part.size() * (island_.size() - 1) * unit.storage.element_size();
  wait_for_transfer({unit.work}, sent, round_, static_cast<int>(u), trace_);
  unit.work = nullptr;
  unit.here = true;
}

void ParameterUnits::free(std::size_t u) {
  Unit& unit = units_[u];
  if (unit.work) bring(u);
  if (!unit.here) return;
  bytes_.remove(static_cast<std::int64_t>(unit.storage.storage().nbytes()));
  resize_memory(unit.storage, 0);
  unit.here = false;
}

void ParameterUnits::before_forward(std::size_t u) {
  if (whole_) return;
  bring(u);
  if (last_) {
    units_[*last_].after = u;
    units_[u].before = last_;
  }
  last_ = u;
  if (units_[u].after) fetch(*units_[u].after);
}

at::Tensor ParameterUnits::after_forward(std::size_t u, at::Tensor output) {
  if (whole_) return output;
  const bool backward_follows = at::GradMode::is_enabled() && output.requires_grad();
  // The last unit is the first that backward needs.
  if (!backward_follows || units_[u].after) free(u);
  if (!units_[u].after) last_.reset();
  if (backward_follows) {
    output.register_hook([this, u](const at::Tensor&) {
      bring(u);
      units_[u].awaited = units_[u].parameters;
      if (units_[u].before) fetch(*units_[u].before);
    });
  }
  return output;
}

void ParameterUnits::got_gradient(std::size_t u) {
  if (units_[u].stays || whole_ || units_[u].awaited == 0) return;
  if (--units_[u].awaited == 0) free(u);
}

/// Lets forward see the values of a shard: from now on, units are gathered from there. The `whole` model stays here, in
/// its own dtype, or only what belongs to no module.
void ParameterUnits::gather_from(const at::Tensor& shard, std::int64_t round, bool whole) {
  round_ = round;
  last_.reset();
  source_ = shard;
  whole_ = whole;
  for (std::size_t u = 0; u < units_.size(); ++u) free(u);
  const at::ScalarType dtype = whole ? live_.scalar_type() : compute_;
  if (units_.front().storage.scalar_type() != dtype) allocate(dtype);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (whole || units_[u].stays) fetch(u);
  }
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (whole || units_[u].stays) bring(u);
  }
}

void ParameterUnits::changed(const std::vector<Range>& /*parts*/, std::int64_t round) {
  gather_from(live_, round, /*whole=*/false);
}

void ParameterUnits::finish(const std::vector<Range>& /*parts*/, std::int64_t round) {
  const std::int64_t most_in_training = bytes_.most();
  gather_from(live_, round, /*whole=*/true);
  bytes_.forget_above(most_in_training);
}

void ParameterUnits::with_values(const at::Tensor& shard, std::int64_t round, const std::function<void()>& body) {
  const bool was_whole = whole_;
  const auto restore = [&] { was_whole ? finish({}, round) : changed({}, round); };
  gather_from(shard, round, /*whole=*/false);
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
