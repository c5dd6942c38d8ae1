#include "island/shown_units.h"

#include <ATen/ATen.h>

#include <utility>

#include "comm/transfer.h"
#include "flat/shard.h"

namespace co2 {

class ShownUnits::Keeper final : public UnitKeeper {
 public:
  Keeper(ShownUnits& units, std::size_t unit) : units_(units), unit_(unit) {}
  void before_forward() override {
    units_.waited_for_by_forward_[unit_] = true;
    units_.wait_for(unit_);
  }
  at::Tensor after_forward(at::Tensor output) override { return output; }

 private:
  ShownUnits& units_;
  std::size_t unit_;
};

ShownUnits::ShownUnits(const Island& island, const FlatParameters& flat, const std::vector<ParameterUnit>& modules,
                       Trace& trace)
    : island_(island),
      flat_(flat),
      trace_(trace),
      modules_(modules),
      works_(flat.units().size()),
      waited_for_by_forward_(works_.size()) {
  const std::size_t first = works_.size() - modules.size();
  for (std::size_t i = 0; i < modules.size(); ++i) {
    modules[i].keep(std::make_shared<Keeper>(*this, first + i));
  }
}

ShownUnits::~ShownUnits() {
  for (const ParameterUnit& module : modules_) module.keep(nullptr);
  wait_out(works_);
}

void ShownUnits::show(const std::vector<Range>& changed, std::int64_t round) {
  wait();
  round_ = round;
  for (const std::size_t unit : island_.units_in(flat_, changed)) {
    works_[unit] = island_.gather(flat_, flat_.data(), unit);
  }
  for (std::size_t unit = 0; unit < works_.size(); ++unit) {
    if (!waited_for_by_forward_[unit]) wait_for(unit);
  }
}

void ShownUnits::gather(const at::Tensor& buffer) const {
  std::vector<WorkPtr> works;
  for (std::size_t unit = 0; unit < works_.size(); ++unit) works.push_back(island_.gather(flat_, buffer, unit));
  for (const WorkPtr& work : works) work->wait();
}

void ShownUnits::wait() {
  for (std::size_t unit = 0; unit < works_.size(); ++unit) wait_for(unit);
}

void ShownUnits::wait_for(std::size_t unit) {
  if (!works_[unit]) return;
  const std::int64_t elements = flat_.units()[unit].size() / island_.size() * (island_.size() - 1);
  wait_for_transfer({works_[unit]}, elements * flat_.data().element_size(), round_, static_cast<int>(unit), trace_);
  works_[unit] = nullptr;
}

}  // namespace co2
