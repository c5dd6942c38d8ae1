#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "train/data/corpus.h"

namespace co2::train {

/// Bytes and, for each, the byte that follows: int64 [samples, context] both.
struct Batch {
  at::Tensor tokens;
  at::Tensor targets;
};

/// A corpus cut into a training part and a validation part at its end, read in windows of `context` bytes.
class Windows {
 public:
  /// Throws DataError if a part is too short for one window.
  Windows(Corpus corpus, double validation_share, int context);

  /// `samples` windows at random places of the training part. A function of its arguments and nothing else, so workers
  /// draw independently of each other, of threads, and of what was drawn before.
  Batch training(std::uint64_t seed, int rank, std::int64_t draw, int samples) const;

  /// Validation: `batches` batches of `samples` windows spread evenly over the validation part without overlap (fewer
  /// if it is short; 0: as many as there are), of which this returns rank's share. All ranks' shares together are the
  /// same for any `size`.
  std::vector<Batch> validation(int batches, int samples, int rank, int size) const;

  std::int64_t training_bytes() const { return split_; }
  std::int64_t validation_bytes() const { return static_cast<std::int64_t>(corpus_.text.size()) - split_; }
  const Corpus& corpus() const { return corpus_; }

 private:
  Batch read(const std::vector<std::int64_t>& starts) const;

  Corpus corpus_;
  int context_;
  std::int64_t split_;
};

}  // namespace co2::train
