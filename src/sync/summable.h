#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace co2 {

/// Whether progress of these squared norms, times its weight, can be added up over the workers in a dtype: it is
/// finite, and even if everybody's were as large, the sum would not overflow.
bool summable(const std::vector<double>& squared_norms, double weight, int workers, at::ScalarType dtype);

}  // namespace co2
