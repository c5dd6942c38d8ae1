#pragma once

#include <cstdint>
#include <vector>

namespace co2::train {

/// In which order training sees the samples of a set: epoch after epoch, each in an order of its own that everybody
/// derives from the seed. The epochs are one endless stream of places 0, 1, 2, …, out of which every step takes the
/// next stretch (StreamPosition). So an epoch is covered without overlap or omission, whatever the number of workers: a
/// batch that reaches beyond its end goes on with the next one.
///
/// Thread safety: used by one thread.
class Epochs {
 public:
  Epochs(std::int64_t samples, std::uint64_t seed);

  /// The sample at a place of the stream. Cheap as long as places do not go back to an earlier epoch.
  std::int64_t at(std::int64_t place);

 private:
  void shuffle(std::int64_t epoch);

  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;  // of that epoch
};

/// How far all workers together are in such a stream. Each has one of its own, and all of them are the same.
struct StreamPosition {
  std::int64_t place = 0;  ///< where the next step begins

  /// The first place of this worker's part of the next step, in which every worker takes as many samples. Moves on.
  std::int64_t take(int rank, int workers, int samples);
};

}  // namespace co2::train
