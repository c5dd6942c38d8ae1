#include "sync/known_parameters.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/saved_state.h"

namespace co2 {
namespace {

TEST(KnownParameters, AreThoseThatWereSentTwice) {
  KnownParameters known;
  EXPECT_FALSE(known.looks());
  known.sent({true, false, true});
  EXPECT_TRUE(known.looks());
  EXPECT_FALSE(known.knows(0));
  known.sent({true, false, false});
  EXPECT_TRUE(known.knows(0));
  EXPECT_FALSE(known.knows(1));
  EXPECT_FALSE(known.knows(2));
  for (int i = 0; i < 100; ++i) known.sent({false, false, i == 50});
  EXPECT_TRUE(known.knows(0)) << "it may rest for some hundred exchanges";
  EXPECT_FALSE(known.knows(1));
  EXPECT_TRUE(known.knows(2));
}

TEST(KnownParameters, AreForgottenWhenTheyRestForLong) {
  KnownParameters known;
  for (int i = 0; i < 2; ++i) known.sent({true, true});
  for (int i = 0; i < 400; ++i) known.sent({i % 200 == 0, false});
  EXPECT_TRUE(known.knows(0));
  EXPECT_FALSE(known.knows(1));
  for (int i = 0; i < 2; ++i) known.sent({true, true});
  EXPECT_TRUE(known.knows(1));
}

TEST(KnownParameters, InAnotherCutTheBetterKnownCounts) {
  KnownParameters old;
  for (int i = 0; i < 2; ++i) old.sent({true, i == 0, false});
  KnownParameters cut;
  cut.resize(3);
  cut.include(0, old, 2);
  cut.include(0, old, 0);
  cut.include(0, old, 1);
  cut.include(1, old, 1);
  EXPECT_TRUE(cut.knows(0));
  EXPECT_FALSE(cut.knows(1));
  EXPECT_FALSE(cut.knows(2));
  cut.sent({true, true, true});
  EXPECT_TRUE(cut.knows(1)) << "once before it was cut, and once after";
  EXPECT_FALSE(cut.knows(2));
}

TEST(KnownParameters, GoOnAfterTheyWereSaved) {
  KnownParameters known;
  for (int i = 0; i < 2; ++i) known.sent({true, i == 0});
  test::SavedState saved;
  test::StateWriter writer(saved);
  known.visit(writer, "known", 2);
  KnownParameters other;
  test::StateReader reader(saved);
  other.visit(reader, "known", 2);
  EXPECT_TRUE(reader.has_read_all());
  EXPECT_TRUE(other.knows(0));
  EXPECT_FALSE(other.knows(1));
  other.sent({false, true});
  EXPECT_TRUE(other.knows(1));
  KnownParameters third;
  test::StateReader again(saved);
  EXPECT_THROW(third.visit(again, "known", 5), DataError) << "of another cut";
}

TEST(HaveMoved, WhateverElementAndDtype) {
  const std::vector<Range> stretches{{0, 1}, {1, 200}, {200, 200}, {200, 1000}};
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor consensus = at::rand({1000}, dtype).add_(0.5);
    consensus[7] = 0.0;
    const auto moved = [&](const at::Tensor& live) { return have_moved(consensus, live, stretches, false); };
    at::Tensor live = consensus.clone();
    live[7] = -0.0;  // some applies make one of the other; nobody has moved it
    EXPECT_EQ(moved(live), (std::vector<bool>{false, false, false, false})) << dtype;
    for (const std::int64_t at : {1, 64, 199}) {
      live = consensus.clone();
      live[at] = 2.0;
      EXPECT_EQ(moved(live), (std::vector<bool>{false, true, false, false})) << dtype << " " << at;
    }
    live = consensus.clone();
    live[0] = std::nan("");
    live[999] = 0.25;
    EXPECT_EQ(moved(live), (std::vector<bool>{true, false, false, true})) << dtype;
  }
}

TEST(HaveMoved, RoughlyMeansMoreThanTheLastBits) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor consensus = at::rand({1000}, dtype).add_(0.5);
    at::Tensor live = consensus.clone();
    for (int i = 0; i < 100; ++i) live = consensus * 0.2 + live * 0.8;  // some of it is rounded again and again
    EXPECT_EQ(have_moved(consensus, live, {{0, 1000}}, false), std::vector<bool>{true}) << dtype;
    EXPECT_EQ(have_moved(consensus, live, {{0, 1000}}, true), std::vector<bool>{false}) << dtype;
    live[500] *= 1.0001;
    EXPECT_EQ(have_moved(consensus, live, {{0, 1000}}, true), std::vector<bool>{true}) << dtype;
  }
}

TEST(SquaredDistance, IsThatOfAllElements) {
  for (const std::int64_t size : {0, 5, (1 << 18) + 3}) {
    EXPECT_NEAR(squared_distance(at::full({size}, 3.0), at::full({size}, 1.0)), 4.0 * static_cast<double>(size), 1e-6);
  }
}

}  // namespace
}  // namespace co2
