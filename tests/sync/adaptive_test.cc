// Rounds whose length and fragments are chosen while training, on workers that are threads.

#include <co2/co2.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "options/recipe.h"
#include "support/toy.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::plain_sgd;
using test::run_workers;
using test::Toy;

constexpr auto kStep = std::chrono::milliseconds(2);

/// A network whose speed the test sets: every collective takes `delay`.
struct Wire {
  std::atomic<std::int64_t> microseconds{100};
  std::function<void()> function() {
    return [this] { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); };
  }
};

struct Seen {
  std::vector<Pace> paces;  // after every step
  at::Tensor consensus;
  at::Tensor live;
};

/// Trains with automatic τ; `at_step` runs on rank 0's thread before each of its steps.
std::vector<Seen> train(int workers, int steps, const Options& options, Wire& wire,
                        const std::function<void(int)>& at_step = {}) {
  std::vector<Seen> seen(static_cast<std::size_t>(workers));
  run_workers(Cluster::in_process(workers, wire.function()), [&](const Cluster& cluster) {
    Toy toy({1000, 3, 77}, 1.0);
    auto optimizer = plain_sgd(toy, 0.001);
    Synchronizer sync(cluster, toy, optimizer, options);
    Seen& mine = seen[static_cast<std::size_t>(cluster.rank())];
    for (int step = 0; step < steps; ++step) {
      if (cluster.rank() == 0 && at_step) at_step(step);
      std::this_thread::sleep_for(kStep);
      toy.set_gradients(cluster.rank() + 1.0);
      sync.step();
      mine.paces.push_back(sync.pace());
    }
    sync.finish();
    mine.consensus = sync.consensus().clone();
    mine.live = sync.live().clone();
  });
  return seen;
}

/// What all workers' steps add up to if no progress is lost and none is counted twice: every worker moves every element
/// by -0.001 (rank + 1) per step.
double expected(int workers, int steps) { return 1.0 - 0.001 * steps * (workers + 1) / 2.0; }

void expect_all_equal(const std::vector<Seen>& seen) {
  for (const Seen& other : seen) {
    ASSERT_EQ(other.paces.size(), seen[0].paces.size());
    for (std::size_t i = 0; i < other.paces.size(); ++i) {
      EXPECT_EQ(other.paces[i].local_steps, seen[0].paces[i].local_steps) << "after step " << i + 1;
      EXPECT_EQ(other.paces[i].fragments, seen[0].paces[i].fragments) << "after step " << i + 1;
    }
    EXPECT_TRUE(at::equal(other.consensus, seen[0].consensus));
    EXPECT_TRUE(at::equal(other.live, seen[0].live));
  }
}

/// Without a limit on what exchanges cost: on a busy machine that, not the wire, would decide about steps this short.
Options plain_average(Strategy strategy) {
  return {
      .strategy = strategy, .exchange_share = 1, .momentum = 0, .penalty = false, .clip = 0, .wire = co2::Wire::kPlain};
}

TEST(Adaptive, FollowsTheNetworkAndLosesNothingWhenThePlanChanges) {
  Wire wire;
  constexpr int kSteps = 600;  // a plan falls after three rounds that agree, and those of a slow network are long
  // Fast, slow, fast: the wanted τ is far apart, so a noisy machine does not matter.
  const auto seen = train(3, kSteps, plain_average(Strategy::kCo2), wire, [&](int step) {
    if (step == 100) wire.microseconds = 12'000;
    if (step == 260) wire.microseconds = 100;
  });
  expect_all_equal(seen);
  const auto& paces = seen[0].paces;
  EXPECT_LT(paces[99].local_steps, paces[259].local_steps);
  EXPECT_LT(paces[kSteps - 1].local_steps, paces[259].local_steps);
  EXPECT_NEAR(seen[0].live[0].item<double>(), expected(3, kSteps), 1e-4);
  EXPECT_NEAR(seen[0].live[1050].item<double>(), expected(3, kSteps), 1e-4);
}

TEST(Adaptive, LosesNothingWithEveryStrategyThatExchangesProgress) {
  for (const Strategy strategy : {Strategy::kLocalSgd, Strategy::kCo2Paper, Strategy::kCo2}) {
    Wire wire;
    const auto seen = train(2, 120, plain_average(strategy), wire, [&](int step) {
      if (step == 40) wire.microseconds = 8'000;
    });
    expect_all_equal(seen);
    // The paper's rule applies every round's progress once, one round late, and finish() keeps the rest.
    EXPECT_NEAR(seen[0].live[0].item<double>(), expected(2, 120), 1e-4) << name(strategy);
  }
}

TEST(Adaptive, TheBoundIsKeptAndReported) {
  Wire wire;
  wire.microseconds = 20'000;
  Options options = plain_average(Strategy::kCo2);
  options.max_local_steps = 5;
  const auto seen = train(2, 60, options, wire);
  expect_all_equal(seen);
  for (const Pace& pace : seen[0].paces) EXPECT_LE(pace.local_steps, 5);
  EXPECT_TRUE(seen[0].paces.back().bounded);
  EXPECT_GT(seen[0].paces.back().bits_per_second_needed, 0);
}

// φ, γ and β belong to the round in which progress was made, not to the one in which it is applied.
TEST(Adaptive, TheDefaultClipTakesNothingWhenRoundsGetLongerOrShorter) {
  Wire wire;
  constexpr int kSteps = 400;
  std::vector<int> paces;
  run_workers(Cluster::in_process(2, wire.function()), [&](const Cluster& cluster) {
    Toy toy({1000, 3, 77}, 1.0);
    auto optimizer = plain_sgd(toy, 0.001);
    Synchronizer sync(cluster, toy, optimizer, {.exchange_share = 1, .momentum = 0});
    for (int step = 0; step < kSteps; ++step) {
      if (cluster.rank() == 0) {
        if (step == 100) wire.microseconds = 12'000;
        if (step == 260) wire.microseconds = 100;
      }
      std::this_thread::sleep_for(kStep);
      toy.set_gradients(cluster.rank() + 1.0);
      sync.step();
      if (cluster.rank() == 0) paces.push_back(sync.pace().local_steps);
    }
    sync.finish();
    EXPECT_NEAR(sync.live()[0].item<double>(), expected(2, kSteps), 1e-4);
    EXPECT_GT(sync.clipping().exchanges, 0);
    EXPECT_EQ(sync.clipping().clipped, 0);
  });
  const auto [shortest, longest] = std::minmax_element(paces.begin() + 10, paces.end());
  EXPECT_LT(2 * *shortest, *longest);
}

TEST(Adaptive, OuterMomentumIsForLongRounds) {
  const Recipe recipe = resolve({});
  EXPECT_EQ(momentum_of(recipe, 15), 0);
  EXPECT_EQ(momentum_of(recipe, 16), 0.3);
  EXPECT_EQ(resolve({.local_steps = 15}).momentum, 0);
  EXPECT_EQ(resolve({.local_steps = 16}).momentum, 0.3);
  EXPECT_EQ(resolve({.local_steps = 2, .momentum = 0.4}).momentum, 0.4);  // the user's own is left alone
  EXPECT_EQ(momentum_of(resolve({.momentum = 0.4}), 2), 0.4);
  EXPECT_EQ(momentum_of(resolve({.strategy = Strategy::kSlowMo}), 2), 0.5);  // as published
}

TEST(Adaptive, RoundsOnlyGrowInNumber) {
  Wire wire;
  run_workers(Cluster::in_process(2, wire.function()), [&](const Cluster& cluster) {
    Toy toy({100});
    auto optimizer = plain_sgd(toy, 0.1);
    Synchronizer sync(cluster, toy, optimizer, {});
    std::int64_t before = 0;
    for (int step = 0; step < 30; ++step) {
      toy.set_gradients(1);
      sync.step();
      EXPECT_GE(sync.rounds(), std::max<std::int64_t>(before, 1)) << "after step " << step + 1;
      before = sync.rounds();
    }
  });
}

TEST(Adaptive, AShortRunEndsOnTheSameModelEverywhere) {
  for (const int steps : {0, 1, 3, 4, 5}) {
    Wire wire;
    const auto seen = train(2, steps, plain_average(Strategy::kCo2), wire);
    expect_all_equal(seen);
    EXPECT_NEAR(seen[0].live[0].item<double>(), expected(2, steps), 1e-5) << steps;
  }
}

TEST(Adaptive, OptionsThatNeedAFixedRoundAreRefused) {
  EXPECT_THROW(resolve({.delay = 3}), OptionError);
  EXPECT_THROW(resolve({.strategy = Strategy::kCo2Paper, .fragments = 2}), OptionError);
  EXPECT_THROW(resolve({.max_local_steps = 0}), OptionError);
  EXPECT_THROW(resolve({.max_local_steps = 3, .fragments = 4}), OptionError);
  EXPECT_THROW(resolve({.exchange_share = 0}), OptionError);
  EXPECT_THROW(resolve({.exchange_share = 1.5}), OptionError);
  EXPECT_EQ(resolve({.fragments = 20}).fragments, 20);
  EXPECT_GE(resolve({.fragments = 20}).local_steps, 20);
}

}  // namespace
}  // namespace co2
