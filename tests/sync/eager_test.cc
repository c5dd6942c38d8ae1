// Eager updates: what the published rule gives, with an outer optimizer on each worker.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "support/toy.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;
using test::Toy;

constexpr double kRate = 0.1, kOuterRate = 0.7, kMomentum = 0.9;
constexpr int kLocalSteps = 3, kWorkers = 3;

/// A worker's inner steps on a quadratic of its own, with another curvature in each element.
at::Tensor gradient(const at::Tensor& at_place, int worker) {
  const at::Tensor curvature = at::linspace(0.2, 1.5, at_place.numel(), at::kDouble);
  return curvature * (at_place - at::linspace(-1, 2, at_place.numel(), at::kDouble) * (worker + 1));
}

TEST(Eager, WorkersAreWhereAnOuterOptimizerOfTheirOwnWouldTakeThem) {
  for (const bool nesterov : {true, false}) {
    // θ, u and d of each worker, and the mean of d in the round before.
    std::vector<at::Tensor> theta(kWorkers, at::zeros({40}, at::kDouble)), u = theta, before = theta;
    at::Tensor arrived = at::zeros({40}, at::kDouble);
    std::vector<std::vector<at::Tensor>> expected(kWorkers);  // by worker and step
    for (int round = 0; round < 6; ++round) {
      at::Tensor mean = at::zeros({40}, at::kDouble);
      for (std::size_t m = 0; m < kWorkers; ++m) {
        at::Tensor live = theta[m].clone();
        for (int step = 0; step < kLocalSteps; ++step) {
          live = live - kRate * gradient(live, static_cast<int>(m));
          expected[m].push_back(live);
        }
        const at::Tensor d = theta[m] - live;
        mean += d / kWorkers;
        const at::Tensor g = arrived + (d - before[m]) / kWorkers;
        u[m] = kMomentum * u[m] + g;
        theta[m] = theta[m] - kOuterRate * (nesterov ? g + kMomentum * u[m] : u[m]);
        before[m] = d;
        expected[m].back() = theta[m];  // where it goes on from
      }
      arrived = mean;
    }
    run_workers(kWorkers, [&](const Cluster& cluster) {
      const auto rank = static_cast<std::size_t>(cluster.rank());
      Toy toy({33, 7});
      toy.to(at::kDouble);
      auto optimizer = test::plain_sgd(toy, kRate);
      Synchronizer sync(cluster, toy, optimizer,
                        {.strategy = Strategy::kEagerDiLoCo, .local_steps = kLocalSteps, .nesterov = nesterov});
      for (std::size_t step = 0; step < expected[rank].size(); ++step) {
        const at::Tensor place = at::cat({toy.parameter[0].detach(), toy.parameter[1].detach()});
        const auto parts = gradient(place, cluster.rank()).split_with_sizes({33, 7});
        for (std::size_t i = 0; i < 2; ++i) toy.parameter[i].mutable_grad() = parts[i].clone();
        sync.step();
        const at::Tensor live = at::cat({toy.parameter[0].detach(), toy.parameter[1].detach()});
        EXPECT_TRUE(at::allclose(live, expected[rank][step], 1e-9, 1e-12)) << step;
      }
      sync.finish();
    });
  }
}

/// Going ahead and being taken back leaves a rounding, which must not pass for progress.
TEST(Eager, WhatIsFrozenIsWhereTheConsensusIs) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const double momentum : {0.4, 0.9}) {
      std::vector<at::Tensor> frozen(kWorkers);
      run_workers(kWorkers, [&](const Cluster& cluster) {
        Toy toy({33, 130});
        toy.to(dtype);
        auto optimizer = test::plain_sgd(toy, kRate);
        Synchronizer sync(cluster, toy, optimizer,
                          {.strategy = Strategy::kEagerDiLoCo, .local_steps = kLocalSteps, .momentum = momentum});
        for (int round = 0; round < 7; ++round) {
          for (int step = 0; step < kLocalSteps; ++step) {
            toy.set_gradients(1 + cluster.rank());
            if (round >= 4) toy.parameter[1].mutable_grad().reset();
            sync.step();
          }
        }
        frozen[static_cast<std::size_t>(cluster.rank())] = toy.parameter[1].detach().clone();
        sync.finish();
      });
      for (const at::Tensor& each : frozen) EXPECT_TRUE(each.equal(frozen[0])) << momentum;
    }
  }
}

TEST(Eager, WhatWouldBreakItsRuleIsRefused) {
  run_workers(1, [](const Cluster& cluster) {
    Toy toy({5});
    auto optimizer = test::plain_sgd(toy, 0.5);
    const Options plain{.strategy = Strategy::kEagerDiLoCo, .local_steps = 4};
    std::vector<Options> refused(5, plain);
    refused[0].fragments = 2;
    refused[1].delay = 0;
    refused[2].restart = Restart::kKeep;
    refused[3].penalty = true;
    refused[4].clip = 4;
    for (const Options& options : refused) EXPECT_THROW(Synchronizer(cluster, toy, optimizer, options), OptionError);
    Synchronizer(cluster, toy, optimizer, plain);
  });
}

}  // namespace
}  // namespace co2
