#include "front/rate_factor.h"

#include <utility>

#include "sync/visiting.h"

namespace co2 {

namespace {

constexpr int kLookEvery = 4;  // steps

}  // namespace

RateFactor::RateFactor(const Cluster& cluster, const Recipe& recipe, torch::optim::Optimizer& optimizer)
    : recipe_(recipe), optimizer_(optimizer) {
  if (!GradientAgreement::matters(recipe, optimizer)) return;
  const int islands = cluster.size() / recipe.island_size;
  watches_ = recipe.rate_factor == 0 && islands > 1;
  agreement_.emplace(cluster.rank() % recipe.island_size, recipe.island_size, islands);
  channel_.emplace(cluster.communicator("gradient agreement"), kLookEvery, static_cast<int>(agreement_->width()));
}

double RateFactor::at(int local_steps) const {
  if (recipe_.rate_factor > 0) return recipe_.rate_factor;
  if (!agreement_ || momentum_of(recipe_, local_steps) > 0) return 1;
  return agreement_->rate_factor();
}

void RateFactor::look() {
  if (watches_ && (steps_ + 1) % kLookEvery == 0) sample_ = agreement_->sample(optimizer_);
}

void RateFactor::after_step() {
  if (!watches_) return;
  ++steps_;
  std::vector<double> mine = std::exchange(sample_, {});
  mine.resize(agreement_->width());  // nothing to show: zeros
  if (const auto sums = channel_->step(mine)) agreement_->take(*sums);
}

void RateFactor::visit(StateVisitor& visitor) {
  if (!agreement_) return;
  visit_counter(visitor, "agreement/steps", steps_);
  agreement_->visit(visitor, "agreement");
  channel_->visit(visitor, "agreement/channel", /*wishes=*/0);
}

void RateFactor::adopt(StateVisitor& visitor) {
  if (agreement_) agreement_->visit(visitor, "agreement");
}

ScaledRates::ScaledRates(torch::optim::Optimizer& optimizer, double factor) : optimizer_(optimizer), factor_(factor) {
  if (factor == 1) return;
  for (auto& group : optimizer.param_groups()) {
    const double rate = group.options().get_lr();
    rates_.push_back({rate, rate * factor});
    group.options().set_lr(rate * factor);
  }
}

ScaledRates::~ScaledRates() {
  for (std::size_t g = 0; g < rates_.size(); ++g) {
    auto& options = optimizer_.param_groups()[g].options();
    const double rate = options.get_lr();
    options.set_lr(rate == rates_[g].scaled ? rates_[g].given : rate / factor_);
  }
}

}  // namespace co2
