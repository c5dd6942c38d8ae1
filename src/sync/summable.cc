#include "sync/summable.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace co2 {

namespace {

double largest(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf: return static_cast<double>(std::numeric_limits<c10::Half>::max());
    case at::kBFloat16: return static_cast<double>(std::numeric_limits<c10::BFloat16>::max());
    case at::kDouble: return std::numeric_limits<double>::max();
    default: return static_cast<double>(std::numeric_limits<float>::max());
  }
}

}  // namespace

bool summable(const std::vector<double>& squared_norms, double weight, int workers, at::ScalarType dtype) {
  const double squared = std::accumulate(squared_norms.begin(), squared_norms.end(), 0.0);
  // (No element is larger than the norm. NaN fails the comparison.)
  return std::sqrt(squared) * weight * workers <= largest(dtype);
}

}  // namespace co2
