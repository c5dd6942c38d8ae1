#pragma once

#include <ATen/ATen.h>

namespace co2 {

/// `elements`, one-dimensional, as a tensor of the shape of `like` and in its memory order (channels_last, say); in the
/// order of its indices if `like` has gaps or overlaps in memory.
inline at::Tensor shaped_like(const at::Tensor& elements, const at::Tensor& like) {
  if (!like.is_non_overlapping_and_dense()) return elements.view(like.sizes());
  return elements.as_strided(like.sizes(), like.strides());
}

}  // namespace co2
