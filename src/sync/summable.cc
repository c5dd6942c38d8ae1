#include "sync/summable.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <limits>

namespace co2 {

namespace {

double largest(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kHalf: return static_cast<double>(std::numeric_limits<c10::Half>::max());
    case c10::kBFloat16: return static_cast<double>(std::numeric_limits<c10::BFloat16>::max());
    case c10::kDouble: return std::numeric_limits<double>::max();
    default: return static_cast<double>(std::numeric_limits<float>::max());
  }
}

}  // namespace

bool summable(double squared_norm, double weight, int workers, c10::ScalarType dtype) {
  // (No element is larger than the norm. NaN fails the comparison.)
  return std::sqrt(squared_norm) * weight * workers <= largest(dtype);
}

}  // namespace co2
