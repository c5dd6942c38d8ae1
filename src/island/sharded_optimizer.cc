#include "island/sharded_optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "flat/shaped_like.h"
#include "island/optimizer_state.h"

namespace co2 {

namespace {

using torch::optim::OptimizerParamState;

/// A parameter, and the padding behind it, with what the optimizer remembers of it.
struct Remembered {
  Range flat;
  at::Tensor parameter;
  std::unique_ptr<OptimizerParamState> state;  // null if it never had a gradient

  /// Whether one state can stand for both.
  bool like(const Remembered& other) const {
    if (!state || !other.state) return !state && !other.state;
    const StateFields mine = fields_of(*state);
    const StateFields others = fields_of(*other.state);
    return mine.step == others.step &&
           std::equal(mine.tensors.begin(), mine.tensors.end(), others.tensors.begin(), others.tensors.end(),
                      [](const at::Tensor* a, const at::Tensor* b) { return a->defined() == b->defined(); });
  }
};

/// All of them, in the order of the flat buffer, which they cover.
std::vector<Remembered> remembered(torch::optim::Optimizer& optimizer, const FlatParameters& flat) {
  std::vector<Remembered> all;
  for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
    if (flat.where(i).size() == 0) continue;
    if (!all.empty()) all.back().flat.end = flat.where(i).begin;
    Remembered one{{flat.where(i).begin, flat.numel()}, flat.parameters()[i], nullptr};
    const auto found = optimizer.state().find(one.parameter.unsafeGetTensorImpl());
    if (found != optimizer.state().end()) one.state = std::move(found->second);
    all.push_back(std::move(one));
  }
  return all;
}

Range common_to(const Range& a, const Range& b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

/// The state of a stretch of the flat buffer, from those of the parameters that it has elements of.
std::unique_ptr<OptimizerParamState> cut_state(const std::vector<Remembered>& parts, std::size_t first,
                                               const Range& stretch) {
  if (!parts[first].state) return nullptr;
  auto cut = parts[first].state->clone();
  const StateFields into = fields_of(*cut);
  for (std::size_t t = 0; t < into.tensors.size(); ++t) {
    if (!into.tensors[t]->defined()) continue;
    const at::Tensor values = at::zeros({stretch.size()}, into.tensors[t]->options());
    for (std::size_t i = first; i < parts.size() && parts[i].flat.begin < stretch.end; ++i) {
      const at::Tensor& parameter = parts[i].parameter;
      const Range common = common_to(stretch, {parts[i].flat.begin, parts[i].flat.begin + parameter.numel()});
      if (common.size() <= 0) continue;  // only padding
      const at::Tensor whole = at::empty({parameter.numel()}, values.options());
      shaped_like(whole, parameter).copy_(*fields_of(*parts[i].state).tensors[t]);
      values.narrow(0, common.begin - stretch.begin, common.size())
          .copy_(whole.narrow(0, common.begin - parts[i].flat.begin, common.size()));
    }
    *into.tensors[t] = values;
  }
  return cut;
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(torch::optim::Optimizer& optimizer, const FlatParameters& flat, const Shard& shard,
                                   const at::Tensor& live, at::Tensor gradients)
    : gradients_(std::move(gradients)) {
  const at::NoGradGuard no_grad;
  const std::vector<Remembered> parts = remembered(optimizer, flat);
  optimizer.state().clear();
  for (auto& group : optimizer.param_groups()) group.params().clear();
  std::size_t first = 0;
  for (const Shard::Segment& segment : shard.segments()) {
    for (std::int64_t begin = segment.flat.begin; begin < segment.flat.end;) {
      while (parts[first].flat.end <= begin) ++first;
      std::size_t last = first;
      while (parts[last].flat.end < segment.flat.end && parts[last + 1].like(parts[first])) ++last;
      const Range stretch{begin, std::min(parts[last].flat.end, segment.flat.end)};
      const std::int64_t shift = segment.local.begin - segment.flat.begin;
      const Range local{stretch.begin + shift, stretch.end + shift};
      at::Tensor parameter = shard.view(live, {local, stretch, segment.group}).detach();
      parameter.set_requires_grad(true);
      optimizer.param_groups()[segment.group].params().push_back(parameter);
      if (auto state = cut_state(parts, first, stretch)) {
        optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
      }
      stretches_.push_back({std::move(parameter), local});
      begin = stretch.end;
    }
  }
  give_gradients();
}

void ShardedOptimizer::give_gradients() {
  // Below autograd, so that it does not count them as views, which zero_grad() may not detach in place.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (Stretch& stretch : stretches_) {
    stretch.parameter.mutable_grad() = gradients_.narrow(0, stretch.local.begin, stretch.local.size());
  }
}

void ShardedOptimizer::drop_gradients() {
  for (Stretch& stretch : stretches_) stretch.parameter.mutable_grad().reset();
}

}  // namespace co2
