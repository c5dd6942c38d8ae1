#pragma once

#include <c10/core/ScalarType.h>

namespace co2 {

/// Whether progress of this squared norm, times its weight, can be added up over the workers in a dtype: it is
/// finite, and even if everybody's were as large, the sum would not overflow.
bool summable(double squared_norm, double weight, int workers, c10::ScalarType dtype);

}  // namespace co2
