#include "sync/side_averages.h"

#include <ATen/ATen.h>
#include <co2/error.h>

#include <utility>

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
    // It is range that they need, not digits: what bfloat16 rounds off stays with the worker.
    const auto wire = at::TensorOptions(at::kBFloat16).device(model.parameters.front().tensor.device());
    of_moments_ = std::make_unique<BackgroundAverage>(
        island.another_across("second moments"),
        BackgroundAverage::Form{std::move(sizes), wire, recipe.bucket_bytes, /*never_negative=*/true}, trace);
  }
}

SideAverages::~SideAverages() {
  if (of_buffers_) of_buffers_->abandon();
  if (of_moments_) of_moments_->abandon();
}

std::vector<at::Tensor> SideAverages::second_moments() const {
  std::vector<at::Tensor> moments = model_.second_moments(trained_);
  bool fits = moments.size() == trained_.size();
  for (std::size_t i = 0; fits && i < moments.size(); ++i) {
    fits =
        !moments[i].defined() || (moments[i].is_floating_point() && moments[i].numel() == trained_[i].tensor.numel());
  }
  if (fits) return moments;
  throw OptionError(
      "TrainedModel::second_moments must return a tensor for each of those that are trained, of its size, or an "
      "undefined one where there is none yet");
}

/// What was sent the last time is due when something is sent again.
void SideAverages::exchange(BackgroundAverage& average, const std::vector<at::Tensor>& tensors,
                            std::int64_t round) const {
  average.apply(tensors);
  average.launch(tensors, round);
  if (recipe_.delay == 0) average.apply(tensors);
}

void SideAverages::after_step(std::int64_t steps, bool round_ends, std::int64_t round) {
  if (of_buffers_) round_ends ? exchange(*of_buffers_, buffers_, round) : of_buffers_->check();
  if (of_moments_) {
    steps % recipe_.agree_moments == 0 ? exchange(*of_moments_, second_moments(), round) : of_moments_->check();
  }
}

void SideAverages::finish(std::int64_t round) {
  if (of_buffers_) {
    of_buffers_->apply(buffers_);
    of_buffers_->launch(buffers_, round);
    of_buffers_->apply(buffers_);
  }
  if (of_moments_) of_moments_->apply(second_moments());
}

void SideAverages::settle() {
  if (of_buffers_) of_buffers_->settle();
  if (of_moments_) of_moments_->settle();
}

void SideAverages::visit(Walk& walk) {
  if (of_buffers_) of_buffers_->visit(walk, "buffer_average");
  if (of_moments_) of_moments_->visit(walk, "second_moments");
}

std::int64_t SideAverages::bytes() const {
  return (of_buffers_ ? of_buffers_->bytes() : 0) + (of_moments_ ? of_moments_->bytes() : 0);
}

}  // namespace co2
