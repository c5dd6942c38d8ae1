#include "island/tour.h"

#include <gtest/gtest.h>

namespace co2 {
namespace {

using Leg = Tour::Leg;

std::vector<std::size_t> walk(Tour& tour) {
  std::vector<std::size_t> units;
  while (const auto next = tour.next()) {
    units.push_back(*next);
    tour.advance();
  }
  return units;
}

TEST(Tour, VisitsEveryUnitOncePerLeg) {
  Tour tour(2, 6);
  EXPECT_FALSE(tour.next());
  tour.begin(Leg::kForward);
  EXPECT_EQ(walk(tour), (std::vector<std::size_t>{2, 3, 4, 5}));
  tour.begin(Leg::kBackward);
  EXPECT_EQ(walk(tour), (std::vector<std::size_t>{5, 4, 3, 2}));
  tour.begin(Leg::kBackward, /*has_first=*/true);
  EXPECT_TRUE(tour.visited(5));
  EXPECT_EQ(walk(tour), (std::vector<std::size_t>{4, 3, 2}));
  EXPECT_EQ(tour.before(3), (std::vector<std::size_t>{5, 4}));
}

TEST(Tour, RemembersWhatWasUsedInThisLeg) {
  Tour tour(0, 3);
  tour.begin(Leg::kForward);
  tour.use(1);
  EXPECT_TRUE(tour.used(1));
  EXPECT_FALSE(tour.used(0));
  EXPECT_FALSE(tour.visited(1));
  tour.begin(Leg::kBackward);
  EXPECT_FALSE(tour.used(1));
}

TEST(Tour, TakesAnotherOrderAndKeepsTheOthersBehindTheirNeighbours) {
  Tour tour(1, 6);
  tour.reorder({4, 2, 5});
  EXPECT_EQ(tour.order(), (std::vector<std::size_t>{1, 4, 2, 3, 5}));
  tour.begin(Leg::kBackward);
  EXPECT_EQ(walk(tour), (std::vector<std::size_t>{5, 3, 2, 4, 1}));
}

}  // namespace
}  // namespace co2
