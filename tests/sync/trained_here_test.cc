#include "sync/trained_here.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/saved_state.h"

namespace co2 {
namespace {

using Answer = std::vector<double>;

TEST(TrainedHere, OnlyWhatInnerStepsHaveChanged) {
  const std::vector<at::Tensor> live{at::zeros({3}), at::zeros({1000}), at::zeros({0})};
  TrainedHere here;
  EXPECT_FALSE(here.looks());
  here.overlook(live);
  EXPECT_FALSE(here.looks()) << "nobody has asked yet";
  here.look(live);
  EXPECT_TRUE(here.looks());
  EXPECT_EQ(here.answer(), (Answer{1, 1, 1})) << "at first, nobody knows";
  here.restart();
  here.look(live);
  EXPECT_EQ(here.answer(), (Answer{0, 0, 0}));
  live[1][999] = 1e-30;  // an inner step
  here.look(live);
  EXPECT_EQ(here.answer(), (Answer{0, 1, 0}));
  live[0].add_(1);  // an exchange
  here.overlook(live);
  here.look(live);
  EXPECT_EQ(here.answer(), (Answer{0, 1, 0})) << "until it is sent, it counts";
  here.restart();
  here.look(live);
  EXPECT_EQ(here.answer(), (Answer{0, 0, 0}));
  here.forget();
  here.look(live);
  EXPECT_EQ(here.answer(), (Answer{1, 1, 1}));
}

TEST(TrainedHere, OnADeviceNothingIsLookedAt) {
  const std::vector<at::Tensor> live{at::empty({5}, at::TensorOptions().device(at::kMeta))};
  TrainedHere here;
  here.look(live);
  here.restart();
  here.overlook(live);
  here.look(live);
  EXPECT_EQ(here.answer(), Answer{1});
}

TEST(TrainedHere, GoesOnAfterItWasSaved) {
  const std::vector<at::Tensor> live{at::rand({3}), at::rand({70})};
  TrainedHere here;
  here.look(live);
  here.restart();
  live[0].mul_(2);
  here.look(live);
  test::SavedState saved;
  test::StateWriter writer(saved);
  here.visit(writer, "here", 2);
  TrainedHere other;
  test::StateReader reader(saved);
  other.visit(reader, "here", 2);
  EXPECT_TRUE(reader.has_read_all());
  other.look(live);
  EXPECT_EQ(other.answer(), (Answer{1, 0}));
  TrainedHere third;
  test::StateReader again(saved);
  EXPECT_THROW(third.visit(again, "here", 5), std::exception) << "of another cut";
}

}  // namespace
}  // namespace co2
