#include "train/data/windows.h"

#include <co2/error.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "support/temporary.h"

namespace co2::train {
namespace {

/// 1000 bytes in which the value tells the place (modulo 250).
Corpus numbered() {
  Corpus corpus{"numbered", "", ""};
  for (int i = 0; i < 1000; ++i) corpus.text += static_cast<char>(i % 250);
  return corpus;
}

TEST(Windows, ValidationIsTheEndOfTheCorpus) {
  const Windows windows(numbered(), 0.1, 20);
  EXPECT_EQ(windows.training_bytes(), 900);
  EXPECT_EQ(windows.validation_bytes(), 100);
  for (const auto& batch : windows.validation(2, 2, 0, 1)) {
    EXPECT_GE(batch.tokens.min().item<std::int64_t>(), 900 % 250);
  }
}

TEST(Windows, TargetsAreTheNextBytes) {
  const Windows windows(numbered(), 0.1, 20);
  const auto batch = windows.training(1, 0, 0, 8);
  EXPECT_EQ(batch.tokens.sizes(), (std::vector<std::int64_t>{8, 20}));
  EXPECT_TRUE(at::equal(batch.targets, (batch.tokens + 1).remainder(250)));
}

TEST(Windows, TrainingWindowsReachBothEndsOfTheirPartAndNoFurther) {
  std::string text(28, 'a');
  text[13] = 'z';  // the last byte before the split
  for (std::size_t i = 14; i < text.size(); ++i) text[i] = 'v';
  const Corpus corpus{"short", "", text};
  const Windows windows(corpus, 0.5, 10);
  std::set<std::int64_t> last;
  for (int draw = 0; draw < 200; ++draw)
    last.insert(windows.training(1, 0, draw, 1).targets[0][9].item<std::int64_t>());
  EXPECT_EQ(last, (std::set<std::int64_t>{'a', 'z'}));
}

TEST(Windows, DrawsDependOnSeedRankAndDrawOnly) {
  const Windows windows(numbered(), 0.1, 20);
  const auto tokens = [&](std::uint64_t seed, int rank, int draw) {
    return windows.training(seed, rank, draw, 8).tokens;
  };
  const auto first = tokens(1, 0, 0);
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 1 ? 2 : 1);
  EXPECT_TRUE(at::equal(first, tokens(1, 0, 0)));
  at::set_num_threads(threads);
  EXPECT_FALSE(at::equal(first, tokens(2, 0, 0)));
  EXPECT_FALSE(at::equal(first, tokens(1, 1, 0)));
  EXPECT_FALSE(at::equal(first, tokens(1, 0, 1)));
  // The same draws as on any other machine, today and tomorrow.
  EXPECT_EQ(first[0][0].item<std::int64_t>(), 194);
}

TEST(Windows, WorkersTogetherValidateTheSameWindowsForAnyNumberOfThem) {
  const Windows windows(numbered(), 0.2, 9);
  const auto starts = [&](int size) {
    std::multiset<std::int64_t> result;
    for (int rank = 0; rank < size; ++rank) {
      for (const auto& batch : windows.validation(4, 3, rank, size)) {
        for (std::int64_t i = 0; i < batch.tokens.size(0); ++i) result.insert(batch.tokens[i][0].item<std::int64_t>());
      }
    }
    return result;
  };
  const auto alone = starts(1);
  EXPECT_EQ(alone.size(), 12u);
  EXPECT_EQ(std::set<std::int64_t>(alone.begin(), alone.end()).size(), 12u);  // no window twice
  for (const int size : {2, 3, 4, 7}) EXPECT_EQ(starts(size), alone) << size;
}

TEST(Windows, AShortValidationPartGivesFewerWindows) {
  const Windows windows(numbered(), 0.1, 30);  // room for three windows
  std::int64_t samples = 0;
  for (const auto& batch : windows.validation(16, 8, 0, 1)) samples += batch.tokens.size(0);
  EXPECT_EQ(samples, 3);
  EXPECT_TRUE(windows.validation(16, 8, 1, 2).empty());
}

TEST(Windows, ZeroBatchesAreAllThatThereAre) {
  const Windows windows(numbered(), 0.2, 9);  // 200 bytes: room for 22 windows
  std::int64_t samples = 0;
  for (const int rank : {0, 1, 2}) {
    for (const auto& batch : windows.validation(0, 3, rank, 3)) samples += batch.tokens.size(0);
  }
  EXPECT_EQ(samples, 22);
}

TEST(Windows, TooShortAPartIsAnErrorThatSaysHowLongTheyAre) {
  EXPECT_NO_THROW(Windows(numbered(), 0.1, 99));
  const auto validation = test::message_of<DataError>([] { Windows(numbered(), 0.1, 100); });
  EXPECT_NE(validation.find("of its 1000 bytes 900 are for training and 100 for validation (--validation-share 0.1)"),
            std::string::npos)
      << validation;
  const auto training = test::message_of<DataError>([] { Windows(numbered(), 0.9, 100); });
  EXPECT_NE(training.find("100 are for training and 900 for validation"), std::string::npos) << training;
  const auto tiny = test::message_of<DataError>([] { Windows({"tiny", "", "abc"}, 0.05, 64); });
  EXPECT_NE(tiny.find("of its 3 bytes 3 are for training and 0 for validation"), std::string::npos) << tiny;
}

}  // namespace
}  // namespace co2::train
