#include "island/trained_shard.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace co2 {

namespace {

/// A parameter in the flat buffer, with the padding behind it.
struct Place {
  Range flat;
  std::int64_t numel;
  std::size_t given;
};

/// All that have elements, in the order of the flat buffer, which they cover.
std::vector<Place> places_in(const FlatParameters& flat) {
  std::vector<Place> places;
  for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
    const Range where = flat.where(i);
    if (where.size() == 0) continue;
    if (!places.empty()) places.back().flat.end = where.begin;
    places.push_back({{where.begin, flat.numel()}, where.size(), flat.given(i)});
  }
  return places;
}

}  // namespace

TrainedShard::TrainedShard(const std::vector<Parameter>& parameters, const FlatParameters& flat, const Shard& shard,
                           const at::Tensor& live, at::Tensor gradients)
    : gradients_(std::move(gradients)) {
  const at::NoGradGuard no_grad;
  const std::vector<Place> places = places_in(flat);
  const auto kind = [&](std::size_t place) { return parameters[places[place].given].kind; };
  std::size_t first = 0;
  for (const Shard::Segment& segment : shard.segments()) {
    for (std::int64_t begin = segment.flat.begin; begin < segment.flat.end;) {
      while (places[first].flat.end <= begin) ++first;
      std::size_t last = first;
      while (places[last].flat.end < segment.flat.end && kind(last + 1) == kind(first)) ++last;
      const Range stretch{begin, std::min(places[last].flat.end, segment.flat.end)};
      const std::int64_t shift = segment.local.begin - segment.flat.begin;
      const Range local{stretch.begin + shift, stretch.end + shift};
      TrainedTensor trained{shard.view(live, {local, stretch, segment.group}).detach(), segment.group, {}};
      trained.tensor.set_requires_grad(true);
      for (std::size_t i = first; i <= last; ++i) {
        const std::int64_t from = std::max(stretch.begin, places[i].flat.begin);
        const std::int64_t to = std::min(stretch.end, places[i].flat.begin + places[i].numel);
        if (to <= from) continue;  // only padding
        trained.pieces.push_back({places[i].given, from - places[i].flat.begin, to - from, from - stretch.begin});
      }
      tensors_.push_back(std::move(trained));
      local_.push_back(local);
      begin = stretch.end;
    }
  }
  give_gradients();
}

void TrainedShard::give_gradients() {
  // Below autograd, so that it does not count them as views, which zero_grad() may not detach in place.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].tensor.mutable_grad() = gradients_.narrow(0, local_[i].begin, local_[i].size());
  }
}

void TrainedShard::drop_gradients() {
  for (TrainedTensor& trained : tensors_) trained.tensor.mutable_grad().reset();
}

}  // namespace co2
