#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/buckets.h"

namespace co2 {

/// The parameters that forward and backward compute with, kept in step with those that this worker answers for:
///
///   WholeParameters   all of them are here (ZeRO 0 to 2)
///   ParameterUnits    they come and go (ZeRO 3)
class ForwardParameters {
 public:
  virtual ~ForwardParameters() = default;

  /// What the optimizer and the exchange between islands work on: the whole model's parameters or only the shard's
  /// (Shard::view), in their own dtype.
  virtual const at::Tensor& live() const = 0;

  /// Call before changing live(): what changed() has started may still read it.
  virtual void settle() {}

  /// live() has changed in these parts of the shard, and forward is to see it.
  virtual void changed(const std::vector<Range>& parts, std::int64_t round) = 0;

  /// The same at the end of training: in the parameters' own dtype, until the next changed(). `whole`: all of them are
  /// brought here; otherwise those that come and go still do.
  virtual void finish(const std::vector<Range>& parts, std::int64_t round, bool whole) = 0;

  /// Runs `body` on a model with the values of another shard.
  virtual void with_values(const at::Tensor& shard, std::int64_t round, const std::function<void()>& body) = 0;

  /// For those that come and go. Backward has produced a gradient of the unit: it is not needed any more once it has
  /// produced all.
  virtual void got_gradient(std::size_t /*unit*/) {}
  /// No backward pass will follow in this step, which has `passes` of them on workers that left none out.
  virtual void passes_over(int /*passes*/) {}
  /// `hook(unit, passes)`: the unit will get no more gradients of the first `passes` backward passes of this step.
  virtual void on_passed(std::function<void(std::size_t, int)> /*hook*/) {}

  /// The most that they, and live(), have taken at once in training: finish() apart.
  virtual std::int64_t most_bytes() const = 0;
};

}  // namespace co2
