#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "outer/outer_pass.h"

/// The outer pass once more, element by element in double precision, straight from docs/algorithm.md.
namespace co2::outer::reference {

/// The tensors of one apply.
struct State {
  at::Tensor sum;
  at::Tensor momentum;
  at::Tensor consensus;
  at::Tensor sent;
  at::Tensor live;

  /// Random, the same for the same size; `offset` elements from an aligned address.
  static State random(std::int64_t size, at::ScalarType dtype = at::kFloat, std::int64_t offset = 0);
  State clone() const;  ///< keeps the offset
};

/// A copy in another dtype, as far from an aligned address.
at::Tensor copy_at_offset(const at::Tensor& tensor, at::ScalarType dtype);

struct Element {
  double value;
  double scale;  ///< sum of the magnitudes that went into it: rounding errors are relative to this, not to the value
};

struct Result {
  std::vector<Element> momentum;
  std::vector<Element> consensus;
  std::vector<Element> live;
  double move_squared_norm = 0;
  double momentum_squared_norm = 0;  ///< before momentum_scale and clip
  double clipped_squared_norm = 0;   ///< of what the clip took
};

Result apply(const State& state, const Move& move);

/// With every scalar of a move at work.
inline Move some_move(Restart restart, bool nesterov) {
  return {.progress_scale = 3.7,
          .momentum = 0.3,
          .momentum_scale = 0.9,
          .clip = 0.4,
          .rate = 0.02,
          .nesterov = nesterov,
          .restart = restart,
          .mix = 0.3};
}

/// The largest distance between `actual` and `expected`, in units in the last place (of float32 or float64, by the
/// dtype of `actual`) of the expected element's scale. NaN if there is one.
double distance_in_ulps(const at::Tensor& actual, const std::vector<Element>& expected);

}  // namespace co2::outer::reference
