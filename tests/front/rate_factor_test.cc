// How many times the rate that it was given a Synchronizer has the optimizer use.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "support/life.h"
#include "support/refusal.h"
#include "support/saved_state.h"
#include "support/toy.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;
using test::SavedState;
using test::Toy;

constexpr double kRate = 0.01;
constexpr int kUntilAllIsIn = 64 * 4 + 10;  // steps

torch::optim::AdamWOptions adamw() { return torch::optim::AdamWOptions(kRate).betas({0.9, 0.95}).weight_decay(0); }

/// Remembers the rate that its step was made with, and may change it itself, as schedules inside of optimizers do.
class WatchedAdamW : public torch::optim::AdamW {
 public:
  using AdamW::AdamW;
  at::Tensor step(LossClosure closure = nullptr) override {
    torch::optim::OptimizerOptions& options = param_groups()[0].options();
    during = options.get_lr();
    at::Tensor loss = AdamW::step(std::move(closure));
    if (fade != 1) options.set_lr(fade * during);
    return loss;
  }
  double during = 0, fade = 1;
};

/// Gradients that are all noise, or the same on all workers.
void step(Synchronizer& sync, Toy& toy, bool noisy, int rank, int number) {
  auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 * number + (noisy ? 1 + rank : 0)));
  for (at::Tensor& p : toy.parameter) p.mutable_grad() = at::randn(p.sizes(), random);
  sync.step();
}

TEST(RateFactor, GivesShortRoundsTheStepThatDdpWouldMake) {
  for (const bool noisy : {true, false}) {
    run_workers(4, [&](const Cluster& cluster) {
      Toy toy({700, 300});
      WatchedAdamW optimizer(toy.parameters(), adamw());
      Synchronizer sync(cluster, toy, optimizer, {.local_steps = 1});
      double factor = sync.rate_factor();
      EXPECT_EQ(factor, 1);  // nothing is known yet
      sync.before_inner_step([&] { EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), kRate); });
      for (int number = 0; number < kUntilAllIsIn; ++number) {
        step(sync, toy, noisy, cluster.rank(), number);
        EXPECT_EQ(optimizer.during, number == 0 ? kRate : factor * kRate);
        factor = sync.rate_factor();
        EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), kRate);  // the user's own again
      }
      EXPECT_NEAR(sync.rate_factor(), noisy ? 2 : 1, 0.1);
      sync.finish();
    });
  }
}

TEST(RateFactor, AWorkerThatAlwaysSkipsDoesNotHoldItForAll) {
  run_workers(4, [&](const Cluster& cluster) {
    Toy toy({700, 300});
    torch::optim::AdamW optimizer(toy.parameters(), adamw());
    Synchronizer sync(cluster, toy, optimizer, {.local_steps = 1});
    for (int number = 0; number < kUntilAllIsIn; ++number) {
      if (cluster.rank() == 3) {
        sync.skip_step();
      } else {
        step(sync, toy, /*noisy=*/true, cluster.rank(), number);
      }
    }
    EXPECT_NEAR(sync.rate_factor(), 2, 0.1);  // √3 to the power of 1.5 is more than √4
    sync.finish();
  });
}

TEST(RateFactor, IsOneWhereStepsAreNotTooShort) {
  const auto factor_after = [](const Options& options, bool sgd) {
    double factor = 0;
    run_workers(2, [&](const Cluster& cluster) {
      Toy toy({100});
      std::unique_ptr<torch::optim::Optimizer> optimizer;
      if (sgd) {
        optimizer = std::make_unique<torch::optim::SGD>(toy.parameters(), torch::optim::SGDOptions(kRate));
      } else {
        optimizer = std::make_unique<torch::optim::AdamW>(toy.parameters(), adamw());
      }
      Synchronizer sync(cluster, toy, *optimizer, options);
      for (int number = 0; number < 200; ++number) step(sync, toy, true, cluster.rank(), number);
      if (cluster.rank() == 0) factor = sync.rate_factor();
    });
    return factor;
  };
  EXPECT_GT(factor_after({.local_steps = 2}, false), 1.2);
  EXPECT_EQ(factor_after({.local_steps = 2}, true), 1);    // SGD's mean step is ddp's
  EXPECT_EQ(factor_after({.local_steps = 16}, false), 1);  // outer momentum instead
  EXPECT_EQ(factor_after({.strategy = Strategy::kDdp}, false), 1);
  EXPECT_EQ(factor_after({.strategy = Strategy::kSlowMo, .local_steps = 2}, false), 1);
  EXPECT_EQ(factor_after({.local_steps = 2, .rate_factor = 1}, false), 1);       // switched off
  EXPECT_EQ(factor_after({.local_steps = 12, .rate_factor = 1.5}, false), 1.5);  // the user's, in any case
  EXPECT_EQ(factor_after({.strategy = Strategy::kDdp, .rate_factor = 1.5}, true), 1.5);
}

TEST(RateFactor, OfTheUserScalesTheProgress) {
  for (const Strategy strategy : {Strategy::kCo2, Strategy::kDdp, Strategy::kNone}) {
    run_workers(2, [&](const Cluster& cluster) {
      Toy toy({5});
      auto optimizer = test::plain_sgd(toy, 0.5);
      const Options options{.strategy = strategy, .rate_factor = 3};
      Synchronizer sync(cluster, toy, optimizer, options);
      EXPECT_EQ(sync.options().rate_factor, 3);
      EXPECT_EQ(sync.asked().rate_factor, 3);
      for (int number = 0; number < 10; ++number) {
        toy.set_gradients(1);
        sync.step();
      }
      sync.finish();
      EXPECT_TRUE(at::allclose(toy.parameter[0].detach(), at::full({5}, -10 * 0.5 * 3.0))) << toy.parameter[0];
    });
  }
}

TEST(RateFactor, ARateThatAHookSetsStays) {
  run_workers(1, [](const Cluster& cluster) {
    Toy toy({5});
    auto optimizer = test::plain_sgd(toy, 0.5);
    Synchronizer sync(cluster, toy, optimizer, {.local_steps = 1, .rate_factor = 2});
    sync.before_inner_step([&] { optimizer.param_groups()[0].options().set_lr(0.125); });
    toy.set_gradients(1);
    sync.step();
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.125);
    EXPECT_TRUE(toy.parameter[0].detach().equal(at::full({5}, -0.25)));  // twice that rate
  });
}

/// Whoever multiplies the rate in each step, in a hook or in the optimizer, must not multiply the factor into it.
TEST(RateFactor, DoesNotCompound) {
  for (const bool in_hook : {true, false}) {
    run_workers(4, [&](const Cluster& cluster) {
      Toy toy({700, 300});
      WatchedAdamW optimizer(toy.parameters(), adamw());
      Synchronizer sync(cluster, toy, optimizer, {.local_steps = 1});
      torch::optim::OptimizerOptions& options = optimizer.param_groups()[0].options();
      if (in_hook) {
        sync.before_inner_step([&] { options.set_lr(0.99 * options.get_lr()); });
      } else {
        optimizer.fade = 0.99;
      }
      for (int number = 0; number < 200; ++number) step(sync, toy, /*noisy=*/true, cluster.rank(), number);
      EXPECT_GT(sync.rate_factor(), 1.5);
      EXPECT_NEAR(options.get_lr(), kRate * std::pow(0.99, 200), 1e-9);
    });
  }
}

TEST(RateFactor, MustBeTheSameOnAllWorkers) {
  for (const double other : {0.0, 2.0}) {
    run_workers(2, [&](const Cluster& cluster) {
      Toy toy({5});
      torch::optim::AdamW optimizer(toy.parameters(), adamw());
      const Options options{.local_steps = 1, .rate_factor = cluster.rank() == 0 ? 1 : other};
      EXPECT_THROW(Synchronizer(cluster, toy, optimizer, options), ClusterError);
    });
  }
}

TEST(RateFactor, WhatItKnowsIsPartOfTheState) {
  // Cut between two looks, and while one is on its way.
  for (const int cut : {17, 20, 22}) {
    std::vector<double> whole(2), again(2);
    const auto run = [](const test::Life& life, std::vector<double>& factors) {
      run_workers(2, [&](const Cluster& cluster) {
        const auto rank = static_cast<std::size_t>(cluster.rank());
        Toy toy({40, 3});
        torch::optim::AdamW optimizer(toy.parameters(), adamw());
        Synchronizer sync(cluster, toy, optimizer, {.local_steps = 2});
        test::live(life, cluster.rank(), sync, [&](int number) { step(sync, toy, true, cluster.rank(), number); });
        factors[rank] = sync.rate_factor();
      });
    };
    std::vector<SavedState> saved(2);
    run({.end = 40}, whole);
    run({.end = cut, .save = &saved}, again);
    run({.begin = cut, .end = 40, .load = &saved}, again);
    EXPECT_GT(whole[0], 1.02);
    EXPECT_EQ(again, whole) << cut;
  }
}

TEST(RateFactor, WhatCantBeHonouredIsRefused) {
  run_workers(1, [](const Cluster& cluster) {
    Toy toy({5});
    auto optimizer = test::plain_sgd(toy, 0.5);
    for (const double factor : {-1.0, 1e6, std::nan("")}) {
      EXPECT_THROW(Synchronizer(cluster, toy, optimizer, {.rate_factor = factor}), OptionError) << factor;
    }
    const auto parameters = test::as_parameters(toy.parameter);
    EXPECT_THROW(Core(cluster, {.parameters = parameters}, {.rate_factor = 2}), OptionError);
    Core(cluster, {.parameters = parameters}, {.rate_factor = 1});
  });
}

}  // namespace
}  // namespace co2
