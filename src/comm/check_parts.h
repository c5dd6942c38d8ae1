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

/// What an all-to-all needs: tensors of the same size, of `size` equal parts.
inline void check_all_to_all(const at::Tensor& output, const at::Tensor& input, int size) {
  TORCH_CHECK(output.numel() == input.numel() && output.dtype() == input.dtype() && input.numel() % size == 0,
              "all_to_all between ", size,
              " workers needs tensors of the same size that can be cut into as many equal "
              "parts, not ",
              output.numel(), " elements of ", output.dtype(), " from ", input.numel(), " of ", input.dtype());
  TORCH_CHECK(output.is_contiguous() && input.is_contiguous(), "all_to_all needs contiguous tensors");
}

}  // namespace co2
