#pragma once

#include <ATen/core/Tensor.h>

#include "base/range.h"

namespace co2 {

/// A stretch of a flat tensor; of an undefined one nothing.
inline at::Tensor cut(const at::Tensor& tensor, const Range& range) {
  return tensor.defined() ? tensor.narrow(0, range.begin, range.size()) : tensor;
}

}  // namespace co2
