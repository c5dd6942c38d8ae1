#include "train/image/epochs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace co2::train {
namespace {

/// Workers of one set after another, and what they have seen. Each has an Epochs of its own.
class Workers {
 public:
  explicit Workers(std::int64_t samples) : samples_(samples) {}

  /// As many steps as it takes to come that far, from where those before them were.
  void train(int workers, int batch, std::int64_t until) {
    std::vector<StreamPosition> positions(static_cast<std::size_t>(workers), position_);
    std::vector<Epochs> epochs(static_cast<std::size_t>(workers), Epochs(samples_, 5));
    while (positions[0].place < until) {
      for (int rank = 0; rank < workers; ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        const std::int64_t first = positions[index].take(rank, workers, batch);
        for (std::int64_t place = first; place < first + batch; ++place) {
          EXPECT_TRUE(seen_.emplace(place, epochs[index].at(place)).second) << "two workers took place " << place;
        }
      }
    }
    for (const StreamPosition& each : positions) EXPECT_EQ(each.place, positions[0].place);
    position_ = positions[0];
  }

  /// Every whole epoch that was seen has every sample once.
  void expect_whole_epochs(std::int64_t at_least) const {
    const std::int64_t epochs = position_.place / samples_;
    EXPECT_GE(epochs, at_least);
    for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
      std::vector<std::int64_t> part;
      for (std::int64_t i = 0; i < samples_; ++i) {
        const auto found = seen_.find(epoch * samples_ + i);
        ASSERT_NE(found, seen_.end()) << "nobody took place " << epoch * samples_ + i;
        part.push_back(found->second);
      }
      std::ranges::sort(part);
      for (std::int64_t i = 0; i < samples_; ++i) ASSERT_EQ(part[static_cast<std::size_t>(i)], i) << "epoch " << epoch;
    }
  }

 private:
  std::int64_t samples_;
  StreamPosition position_;
  std::map<std::int64_t, std::int64_t> seen_;  // samples by place
};

TEST(Epochs, EveryEpochHasEverySampleOnceWhateverTheNumbers) {
  for (const std::int64_t samples : {1, 7, 64, 101}) {
    for (const int workers : {1, 2, 3, 5}) {
      for (const int batch : {1, 4, 9}) {
        SCOPED_TRACE(testing::Message() << samples << " samples, " << workers << " workers, batch " << batch);
        Workers all(samples);
        all.train(workers, batch, 4 * samples);
        all.expect_whole_epochs(4);
      }
    }
  }
}

TEST(Epochs, AreCoveredToTheEndByAnotherNumberOfWorkers) {
  Workers all(101);
  all.train(3, 4, 50);
  all.train(2, 9, 170);
  all.train(5, 1, 303);
  all.expect_whole_epochs(3);
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
