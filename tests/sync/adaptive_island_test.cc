// Rounds whose length is chosen while training, between islands: what happens inside them must not be mistaken for the
// exchange, and all workers must come to the same plan.

#include <co2/co2.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "support/toy.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::plain_sgd;
using test::run_workers;
using test::Toy;

constexpr auto kCompute = std::chrono::milliseconds(4);

TEST(AdaptiveIslands, MeasureTheExchangeAndTheWholeStep) {
  std::vector<std::vector<Pace>> paces(4);
  const auto wire = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  run_workers(Cluster::in_process(4, wire), [&](const Cluster& cluster) {
    Toy toy({1000, 3, 77}, 1.0);
    auto optimizer = plain_sgd(toy, 0.001);
    Synchronizer sync(cluster, toy, optimizer, {.strategy = Strategy::kCo2, .exchange_share = 1, .island_size = 2});
    for (int step = 0; step < 120; ++step) {
      std::this_thread::sleep_for(kCompute);  // before the island's gradients: it counts as computation
      toy.set_gradients(cluster.rank() + 1.0);
      sync.step();
      paces[static_cast<std::size_t>(cluster.rank())].push_back(sync.pace());
    }
    sync.finish();
  });
  for (const auto& mine : paces) {
    ASSERT_EQ(mine.size(), paces[0].size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(mine[i].local_steps, paces[0][i].local_steps) << "after step " << i + 1;
      EXPECT_EQ(mine[i].fragments, paces[0][i].fragments) << "after step " << i + 1;
    }
    const Pace& last = mine.back();
    EXPECT_GE(last.step_seconds, std::chrono::duration<double>(kCompute).count());
    EXPECT_GT(last.transfer_seconds, 0);
    // In every step there are gradients on the wire; counted as exchanges, they would make τ run away.
    EXPECT_FALSE(last.bounded);
    EXPECT_LT(last.local_steps, 60);
  }
}

}  // namespace
}  // namespace co2
