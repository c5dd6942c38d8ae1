#include "train/image/epochs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace co2::train {
namespace {

/// What `workers` workers see in their steps, in the order of the stream: each takes its own part of every batch, with
/// an Epochs of its own.
std::vector<std::int64_t> seen(std::int64_t samples, int workers, int batch, std::int64_t places) {
  std::vector<std::int64_t> stream(static_cast<std::size_t>(places), -1);
  for (int rank = 0; rank < workers; ++rank) {
    Epochs epochs(samples, 5);
    for (std::int64_t step = 0; step * workers * batch < places; ++step) {
      for (int i = 0; i < batch; ++i) {
        const std::int64_t place = (step * workers + rank) * batch + i;
        if (place >= places) continue;
        EXPECT_EQ(stream[static_cast<std::size_t>(place)], -1) << "two workers took place " << place;
        stream[static_cast<std::size_t>(place)] = epochs.at(place);
      }
    }
  }
  return stream;
}

TEST(Epochs, EveryEpochHasEverySampleOnceWhateverTheNumbers) {
  constexpr std::int64_t kEpochs = 4;
  for (const std::int64_t samples : {1, 7, 64, 101}) {
    for (const int workers : {1, 2, 3, 5}) {
      for (const int batch : {1, 4, 9}) {
        const auto stream = seen(samples, workers, batch, kEpochs * samples);
        for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
          std::vector<std::int64_t> part(stream.begin() + epoch * samples, stream.begin() + (epoch + 1) * samples);
          std::ranges::sort(part);
          for (std::int64_t i = 0; i < samples; ++i) {
            ASSERT_EQ(part[static_cast<std::size_t>(i)], i)
                << samples << " samples, " << workers << " workers, batch " << batch << ", epoch " << epoch;
          }
        }
      }
    }
  }
}

TEST(Epochs, HaveOrdersOfTheirOwnThatDependOnTheSeedOnly) {
  const auto order = [](std::uint64_t seed, std::int64_t epoch) {
    Epochs epochs(50, seed);
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i < 50; ++i) result.push_back(epochs.at(epoch * 50 + i));
    return result;
  };
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_EQ(order(1, 3), order(1, 3));
  Epochs back(50, 1);
  back.at(170);
  EXPECT_EQ(back.at(3), order(1, 0)[3]);
}

TEST(Epochs, AreShuffledEvenly) {
  std::map<std::int64_t, int> first;
  Epochs epochs(10, 3);
  for (std::int64_t epoch = 0; epoch < 2000; ++epoch) ++first[epochs.at(epoch * 10)];
  ASSERT_EQ(first.size(), 10u);
  for (const auto& [sample, count] : first) EXPECT_NEAR(count, 200, 60) << sample;  // 4.5 deviations
}

}  // namespace
}  // namespace co2::train
