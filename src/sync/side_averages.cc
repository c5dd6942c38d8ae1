#include "sync/side_averages.h"

#include <ATen/ATen.h>
#include <co2/error.h>

#include <cmath>
#include <utility>

#include "sync/visiting.h"

namespace co2 {

SideAverages::SideAverages(const Recipe& recipe, const TrainedModel& model, const Island& island,
                           const std::shared_ptr<Communicator>& all, const std::vector<TrainedTensor>& trained,
                           Trace& trace)
    : recipe_(recipe), model_(model), trained_(trained) {
  std::vector<std::int64_t> sizes;
  for (const auto& [name, buffer] : model.buffers) {
    // Integers among them (batch counters) are equal on all workers by themselves, and are left alone.
    if (!buffer.defined() || !buffer.is_floating_point() || buffer.numel() == 0) continue;
    buffers_.push_back(buffer);
    sizes.push_back(buffer.numel());
  }
  const auto& with = recipe.exchange == Recipe::Exchange::kNothing ? island.inside() : all;
  if (with && !buffers_.empty()) {
    // float64: statistics of any dtype pass through without loss.
    const auto wire = at::TensorOptions(at::kDouble).device(buffers_.front().device());
    of_buffers_ = std::make_unique<BackgroundAverage>(
        with, BackgroundAverage::Form{std::move(sizes), wire, recipe.bucket_bytes}, trace);
  }
  if (recipe.agree_moments > 0 && island.across()->size() > 1) {
    sizes.clear();
    for (const TrainedTensor& each : trained) sizes.push_back(each.tensor.numel());
    // A sum in bfloat16 would be off by more than what a step changes, with a usual β₂, and v would stay where it is.
    const auto wire = at::TensorOptions(at::kFloat).device(model.parameters.front().tensor.device());
    of_moments_ = std::make_unique<BackgroundAverage>(
        island.another_across("second moments"), BackgroundAverage::Form{std::move(sizes), wire, recipe.bucket_bytes},
        trace);
  }
}

SideAverages::~SideAverages() {
  if (of_buffers_) of_buffers_->abandon();
  if (of_moments_) of_moments_->abandon();
}

std::vector<SecondMoment> SideAverages::second_moments() const {
  std::vector<SecondMoment> moments = model_.second_moments(trained_);
  bool fits = moments.size() == trained_.size();
  for (std::size_t i = 0; fits && i < moments.size(); ++i) {
    const auto& [value, decay] = moments[i];
    fits = decay >= 0 && decay <= 1 &&
           (!value.defined() || (value.is_floating_point() && value.numel() == trained_[i].tensor.numel()));
  }
  if (fits) return moments;
  throw OptionError(
      "TrainedModel::second_moments must return a tensor for each of those that are trained, of its size, or an "
      "undefined one where there is none yet, with a decay from 0 to 1");
}

namespace {
std::vector<at::Tensor> values_of(const std::vector<SecondMoment>& moments) {
  std::vector<at::Tensor> values;
  for (const SecondMoment& moment : moments) values.push_back(moment.value);
  return values;
}
}  // namespace

// v += β₂ˢ (mean - sent), s steps after it was sent: as if the mean had been there from then on.
void SideAverages::apply_moments(const std::vector<SecondMoment>& moments) {
  std::vector<double> kept;
  for (const SecondMoment& moment : moments) {
    kept.push_back(std::pow(moment.decay, static_cast<double>(since_moments_)));
  }
  of_moments_->apply(values_of(moments), kept);
}

/// What was sent the last time is due when something is sent again.
void SideAverages::exchange_moments(std::int64_t round) {
  const std::vector<SecondMoment> moments = second_moments();
  apply_moments(moments);
  of_moments_->launch(values_of(moments), round);
  since_moments_ = 0;
  if (recipe_.delay == 0) apply_moments(moments);
}

void SideAverages::exchange_buffers(std::int64_t round, bool at_once) {
  of_buffers_->apply(buffers_);
  of_buffers_->launch(buffers_, round);
  if (at_once) of_buffers_->apply(buffers_);
}

void SideAverages::after_step(const Step& step) {
  if (of_buffers_) step.round_ends ? exchange_buffers(step.round, recipe_.delay == 0) : of_buffers_->check();
  if (of_moments_) {
    if (step.updated) ++since_moments_;
    step.steps % recipe_.agree_moments == 0 ? exchange_moments(step.round) : of_moments_->check();
  }
}

void SideAverages::finish(std::int64_t round) {
  if (of_buffers_) exchange_buffers(round, /*at_once=*/true);
  if (of_moments_) apply_moments(second_moments());
}

void SideAverages::settle() {
  if (of_buffers_) of_buffers_->settle();
  if (of_moments_) of_moments_->settle();
}

void SideAverages::visit(Walk& walk) {
  if (of_buffers_) of_buffers_->visit(walk, "buffer_average");
  if (of_moments_) {
    visit_counter(walk.visitor(), "second_moments/since", since_moments_);
    of_moments_->visit(walk, "second_moments");
  }
}

std::int64_t SideAverages::bytes() const {
  return (of_buffers_ ? of_buffers_->bytes() : 0) + (of_moments_ ? of_moments_->bytes() : 0);
}

}  // namespace co2
