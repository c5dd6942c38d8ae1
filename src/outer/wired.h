#pragma once

#include <ATen/core/Tensor.h>
#include <co2/options.h>

#include <cstdint>
#include <utility>

#include "outer/blocks.h"

namespace co2::outer {

/// Numbers in the form in which they came over the network.
struct Wired {
  /// None.
  Wired() = default;
  /// In a floating dtype, with a number per element.
  // NOLINTNEXTLINE(google-explicit-constructor): a tensor of numbers is one of these as it is
  Wired(const at::Tensor& values) : data(values), numel(values.defined() ? values.numel() : 0) {}
  /// In blocks: bytes, one-dimensional and contiguous, of blocks_for(count) blocks.
  Wired(at::Tensor blocks, Wire form, std::int64_t count, double times = 1)
      : data(std::move(blocks)), wire(form), numel(count), weight(times) {}

  at::Tensor data;
  Wire wire = Wire::kPlain;  ///< or one of blocks. Other numbers have the dtype that they have
  std::int64_t numel = 0;
  double weight = 1;  ///< of blocks: that their numbers were multiplied by, and are divided by when they are read
};

/// The numbers in a floating dtype; blocks become float32 unless another one is asked for, others stay as they are.
/// By LibTorch's operators, on any device.
at::Tensor decode(const Wired& values, at::ScalarType dtype = at::kFloat);

}  // namespace co2::outer
