#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace co2 {

/// What an all-gather or a reduce-scatter needs: `whole` is `size` times `part`, and both are contiguous.
inline void check_parts(const char* operation, const at::Tensor& whole, const at::Tensor& part, int size) {
  TORCH_CHECK(whole.numel() == part.numel() * size && whole.dtype() == part.dtype(), operation, " between ", size,
              " workers needs a tensor of ", size, " times ", part.numel(), " elements of ", part.dtype(), ", not ",
              whole.numel(), " of ", whole.dtype());
  TORCH_CHECK(whole.is_contiguous() && part.is_contiguous(), operation, " needs contiguous tensors");
}

}  // namespace co2
