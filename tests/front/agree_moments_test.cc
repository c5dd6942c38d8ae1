// Adam's second moments, averaged over workers every few steps.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "support/life.h"
#include "support/saved_state.h"
#include "support/toy.h"
#include "support/unit_model.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;
using test::SavedState;
using test::Toy;

constexpr double kBeta2 = 0.95;

torch::optim::AdamWOptions adamw() { return torch::optim::AdamWOptions(0.01).betas({0.9, kBeta2}).weight_decay(0); }

at::Tensor& moment(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  return static_cast<torch::optim::AdamWParamState&>(*optimizer.state().at(parameter.unsafeGetTensorImpl()))
      .exp_avg_sq();
}

/// Worker r's gradients are all r + 1: its own second moment tends to (r + 1)².
TEST(AgreeMoments, WhatWasSentIsReplacedByTheMeanAndWhatCameSinceStays) {
  constexpr int kEvery = 3;
  for (const int workers : {2, 3}) {
    run_workers(workers, [&](const Cluster& cluster) {
      Toy toy({70, 1});
      torch::optim::AdamW optimizer(toy.parameters(), adamw());
      Synchronizer sync(cluster, toy, optimizer, {.local_steps = 1, .agree_moments = kEvery, .rate_factor = 1});
      // By hand: all workers' moments, what is on its way, and when it arrives.
      std::vector<double> v(static_cast<std::size_t>(workers)), sent;
      for (int step = 1; step <= 20; ++step) {
        toy.set_gradients(1 + cluster.rank());
        sync.step();
        double mean = 0;
        for (std::size_t r = 0; r < v.size(); ++r) v[r] = kBeta2 * v[r] + (1 - kBeta2) * std::pow(1.0 + r, 2);
        if (step % kEvery == 0) {
          if (!sent.empty()) {
            for (const double each : sent) mean += each / workers;
            for (std::size_t r = 0; r < v.size(); ++r) v[r] += std::pow(kBeta2, kEvery) * (mean - sent[r]);
          }
          sent = v;
        }
        const double expected = v[static_cast<std::size_t>(cluster.rank())];
        for (const at::Tensor& p : toy.parameter) {
          EXPECT_TRUE(at::allclose(moment(optimizer, p), at::full_like(p, expected), /*rtol=*/1e-5)) << step;
        }
      }
      sync.finish();
    });
  }
}

/// A burst is long forgotten when its mean arrives: what a worker no longer has can't be taken from it.
TEST(AgreeMoments, TakeNothingThatHasFaded) {
  for (const int every : {2, 32, 64}) {
    run_workers(2, [&](const Cluster& cluster) {
      Toy toy({10});
      torch::optim::AdamW optimizer(toy.parameters(), adamw());
      Synchronizer sync(cluster, toy, optimizer, {.local_steps = 1, .agree_moments = every, .rate_factor = 1});
      for (int step = 0; step < 150; ++step) {
        toy.set_gradients(step == 0 && cluster.rank() == 0 ? 1e3 : 1);
        sync.step();
        EXPECT_GT(moment(optimizer, toy.parameter[0]).min().item<double>(), 0.04) << every << " " << step;
      }
    });
  }
}

TEST(AgreeMoments, AStepThatIsSkippedFadesNothing) {
  run_workers(2, [&](const Cluster& cluster) {
    Toy toy({10});
    torch::optim::AdamW optimizer(toy.parameters(), adamw());
    Synchronizer sync(cluster, toy, optimizer, {.local_steps = 1, .agree_moments = 4, .rate_factor = 1});
    const auto now = [&] { return moment(optimizer, toy.parameter[0])[0].item<double>(); };
    for (int step = 0; step < 4; ++step) {
      toy.set_gradients(1 + cluster.rank());
      sync.step();
    }
    const double sent = now();
    for (int step = 0; step < 4; ++step) sync.skip_step();
    EXPECT_NEAR(now(), sent * 2.5 / (cluster.rank() == 0 ? 1 : 4), 1e-5);  // the mean itself
  });
}

/// Differences of a thousandth, as an ordinary β₂ makes them, are not rounded off on the way.
TEST(AgreeMoments, FollowSmallChanges) {
  run_workers(2, [&](const Cluster& cluster) {
    Toy toy({10});
    torch::optim::AdamW optimizer(toy.parameters(), adamw().betas({0.9, 0.999}));
    Synchronizer sync(cluster, toy, optimizer, {.local_steps = 1, .agree_moments = 1, .rate_factor = 1});
    constexpr int kSteps = 3000;
    for (int step = 0; step < kSteps; ++step) {
      toy.set_gradients(1 + cluster.rank());
      sync.step();
    }
    const double expected = 2.5 * (1 - std::pow(0.999, kSteps));
    EXPECT_NEAR(moment(optimizer, toy.parameter[0])[0].item<double>(), expected, 0.01 * expected);
  });
}

/// Who trains a parameter alone keeps its second moment to itself.
TEST(AgreeMoments, WhoHasNoneTakesNothingFromOthers) {
  for (const int workers : {2, 4}) {
    run_workers(workers, [&](const Cluster& cluster) {
      Toy toy({4, 4});
      torch::optim::AdamW optimizer(toy.parameters(), adamw());
      Synchronizer sync(cluster, toy, optimizer, {.local_steps = 1, .agree_moments = 3, .rate_factor = 1});
      for (int step = 0; step < 60; ++step) {
        toy.set_gradients(1);
        if (cluster.rank() != 1) toy.parameter[1].mutable_grad().reset();
        sync.step();
      }
      for (std::size_t i = 0; i < 2; ++i) {
        if (i == 1 && cluster.rank() != 1) continue;
        EXPECT_NEAR(moment(optimizer, toy.parameter[i])[0].item<double>(), 1 - std::pow(kBeta2, 60), 1e-5) << i;
      }
    });
  }
}

TEST(AgreeMoments, WhoHasNoneOrNoNumbersPoisonsNobody) {
  run_workers(3, [&](const Cluster& cluster) {
    Toy toy({4, 4});
    torch::optim::AdamW optimizer(toy.parameters(), adamw());
    Synchronizer sync(cluster, toy, optimizer, {.local_steps = 1, .agree_moments = 1, .rate_factor = 1});
    for (int step = 0; step < 6; ++step) {
      toy.set_gradients(2);
      // Worker 0 never uses the second parameter, and has no state for it.
      if (cluster.rank() == 0) toy.parameter[1].mutable_grad().reset();
      if (cluster.rank() == 2 && step == 3) {
        moment(optimizer, toy.parameter[0]).fill_(std::numeric_limits<float>::quiet_NaN());
      }
      sync.step();
    }
    // The worker that had lost its numbers has taken the others' over.
    EXPECT_TRUE(moment(optimizer, toy.parameter[0]).isfinite().all().item<bool>()) << cluster.rank();
    EXPECT_EQ((optimizer.state().find(toy.parameter[1].unsafeGetTensorImpl()) != optimizer.state().end()),
              cluster.rank() != 0);
  });
}

TEST(AgreeMoments, OfAShardTravelBetweenIslands) {
  for (const int zero : {1, 2, 3}) {
    const auto train = [&](int every) {
      std::vector<at::Tensor> moments(4);
      run_workers(4, [&](const Cluster& cluster) {
        test::UnitModel model(3);
        torch::optim::AdamW optimizer(model.parameters(), adamw());
        Synchronizer sync(cluster, model, optimizer,
                          {.local_steps = 2, .agree_moments = every, .rate_factor = 1, .island_size = 2, .zero = zero});
        for (int step = 0; step < 12; ++step) {
          optimizer.zero_grad();
          model.loss(test::unit_batch(step, 0, cluster.rank() / 2)).backward();
          sync.step();
        }
        std::vector<at::Tensor> all;
        for (const TrainedTensor& trained : sync.trained()) all.push_back(moment(optimizer, trained.tensor).flatten());
        moments[static_cast<std::size_t>(cluster.rank())] = at::cat(all);
        sync.finish();
      });
      // Ranks 0 and 2 have the same shard.
      return ((moments[0] - moments[2]).norm() / moments[0].norm()).item<double>();
    };
    EXPECT_GT(train(0), 0.1) << zero;
    EXPECT_LT(train(1), 0.6 * train(0)) << zero;
  }
}

TEST(AgreeMoments, WhatIsOnItsWayIsPartOfTheState) {
  const auto run = [](const test::Life& life) {
    std::vector<at::Tensor> ends(2);
    run_workers(2, [&](const Cluster& cluster) {
      const auto rank = static_cast<std::size_t>(cluster.rank());
      Toy toy({40, 3});
      torch::optim::AdamW optimizer(toy.parameters(), adamw());
      Synchronizer sync(cluster, toy, optimizer, {.local_steps = 4, .agree_moments = 3});
      test::live(life, cluster.rank(), sync, [&](int number) {
        auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 * number + cluster.rank()));
        for (at::Tensor& p : toy.parameter) p.mutable_grad() = at::randn(p.sizes(), random);
        sync.step();
      });
      if (life.save != nullptr) return;
      sync.finish();
      ends[rank] = at::cat({toy.parameter[0].detach(), toy.parameter[1].detach(), moment(optimizer, toy.parameter[0]),
                            moment(optimizer, toy.parameter[1])});
    });
    return ends;
  };
  const auto whole = run({.end = 14});
  for (int cut = 1; cut < 14; ++cut) {
    std::vector<SavedState> saved(2);
    run({.end = cut, .save = &saved});
    EXPECT_EQ(saved[0].integers.at("second_moments/in_flight"), cut >= 3 ? 1 : 0);
    const auto again = run({.begin = cut, .end = 14, .load = &saved});
    for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(again[rank].equal(whole[rank])) << cut;
  }
}

TEST(AgreeMoments, WhatCantBeHonouredIsRefused) {
  run_workers(2, [](const Cluster& cluster) {
    Toy toy({5});
    auto sgd = test::plain_sgd(toy, 0.5);
    EXPECT_THROW(Synchronizer(cluster, toy, sgd, {.local_steps = 2, .agree_moments = 4}), OptionError);
    torch::optim::AdamW optimizer(toy.parameters(), adamw());
    EXPECT_THROW(Synchronizer(cluster, toy, optimizer, {.agree_moments = -1}), OptionError);
    EXPECT_THROW(Synchronizer(cluster, toy, optimizer, {.strategy = Strategy::kDdp, .agree_moments = 4}), OptionError);
    EXPECT_THROW(Synchronizer(cluster, toy, optimizer, {.agree_moments = 4, .island_size = 2}), OptionError);
    const Options options{.local_steps = 2, .agree_moments = 1};
    const auto parameters = test::as_parameters(toy.parameter);
    EXPECT_THROW(Core(cluster, {.parameters = parameters}, options), OptionError);
    Core core(cluster,
              {.parameters = parameters,
               .second_moments =
                   [](const auto&) {
                     return std::vector<SecondMoment>{{at::zeros({4}), 0.9}};
                   }},
              options);
    core.begin_step({0.1});
    EXPECT_THROW(core.end_step({0.1}), OptionError);  // of another size
  });
}

}  // namespace
}  // namespace co2
