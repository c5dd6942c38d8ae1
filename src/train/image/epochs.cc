#include "train/image/epochs.h"

#include <numeric>
#include <utility>

#include "train/data/random.h"

namespace co2::train {

Epochs::Epochs(std::int64_t samples, std::uint64_t seed) : seed_(seed), order_(static_cast<std::size_t>(samples)) {}

std::int64_t Epochs::at(std::int64_t place) {
  const auto samples = static_cast<std::int64_t>(order_.size());
  if (place / samples != epoch_) shuffle(place / samples);
  return order_[static_cast<std::size_t>(place % samples)];
}

std::int64_t StreamPosition::take(int rank, int workers, int samples) {
  const std::int64_t mine = place + std::int64_t{rank} * samples;
  place += std::int64_t{workers} * samples;
  return mine;
}

void Epochs::shuffle(std::int64_t epoch) {
  epoch_ = epoch;
  std::iota(order_.begin(), order_.end(), 0);
  for (std::size_t left = order_.size(); left > 1; --left) {  // Fisher and Yates
    const auto chosen = mixed({seed_, static_cast<std::uint64_t>(epoch), left}) % left;
    std::swap(order_[left - 1], order_[static_cast<std::size_t>(chosen)]);
  }
}

}  // namespace co2::train
