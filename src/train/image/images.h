#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace co2::train {

/// Pictures, and of which class each is.
struct Images {
  at::Tensor pixels;  ///< uint8 [count, channels, height, width]
  at::Tensor labels;  ///< int64 [count]

  std::int64_t count() const { return pixels.size(0); }
};

/// A data set in memory.
struct ImageSet {
  std::string name;
  std::string sha256;
  Images training;
  Images validation;
  std::vector<std::string> classes;  ///< their names, by label
  bool mirrors = false;              ///< a picture's mirror image is of the same class: true of clothes, not of digits

  std::int64_t bytes() const { return training.pixels.numel() + validation.pixels.numel(); }
};

/// What a model must know of the pictures.
struct ImageFormat {
  int channels = 1;
  int classes = 10;
};

}  // namespace co2::train
