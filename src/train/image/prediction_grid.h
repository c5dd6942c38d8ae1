#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace co2::train {

/// A picture, what it shows, and what the model took it for.
struct Prediction {
  at::Tensor pixels;  ///< uint8 [channels, height, width]
  std::string truth;
  std::string guess;
};

/// All of them in one picture, in rows: the input, below it the truth, and below that the prediction, green if it is
/// right and red if not. uint8 [height, width, 3], for write_png().
at::Tensor prediction_grid(const std::vector<Prediction>& predictions, int columns);

}  // namespace co2::train
