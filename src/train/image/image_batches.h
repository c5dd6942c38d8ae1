#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "train/image/epochs.h"
#include "train/image/images.h"

namespace co2::train {

/// Pictures as the model reads them, and their classes.
struct ImageBatch {
  at::Tensor images;  ///< float32 [count, channels, height, width], channels last in memory: convolutions are faster
  at::Tensor labels;  ///< int64 [count]
};

/// Of every channel, as shares of the brightest value.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> deviation;
};
Normalization normalization_of(const Images& images);

/// How pictures are changed at random before the model sees them.
struct Augmentation {
  int shift = 0;      ///< pixels at most, in both directions; what comes in at the border is black
  bool flip = false;  ///< left and right, in half of all cases
};

/// Batches of a set, made from bytes when they are asked for.
///
/// Thread safety: used by one thread.
class ImageBatches {
 public:
  ImageBatches(const ImageSet& set, const Augmentation& augmentation, std::uint64_t seed);

  /// The training samples from this place of the stream of epochs on (epochs.h). A function of its arguments, the seed
  /// and nothing else: what happens to a sample depends on its place in the stream, not on who takes it.
  ImageBatch training(std::int64_t place, int samples);

  /// Those validation samples, as they are.
  ImageBatch validation(const std::vector<std::int64_t>& samples) const;

  const Normalization& normalization() const { return normalization_; }

 private:
  struct Change {
    int down = 0;
    int right = 0;
    bool flip = false;
  };
  Change change_at(std::int64_t place) const;
  ImageBatch empty_batch(std::int64_t samples) const;
  void put(const Images& from, std::int64_t sample, const Change& change, const ImageBatch& into,
           std::int64_t at) const;

  const ImageSet& set_;
  Augmentation augmentation_;
  std::uint64_t seed_;
  Epochs epochs_;
  Normalization normalization_;
  std::vector<float> values_;  // by channel and byte
};

}  // namespace co2::train
