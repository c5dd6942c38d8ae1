#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "support/toy.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::plain_sgd;
using test::run_workers;
using test::Toy;

TEST(Synchronizer, EverybodyStartsFromRankZero) {
  run_workers(3, [](const Cluster& cluster) {
    Toy toy({3, 1025}, cluster.rank() + 1.0);
    toy.parameter[0].set_requires_grad(false);  // frozen: not exchanged, but given to everybody at the start
    const torch::Tensor buffer = toy.register_buffer("statistics", torch::full({2}, float(cluster.rank())));
    auto optimizer = plain_sgd(toy, 0.1);
    const Synchronizer sync(cluster, toy, optimizer);
    EXPECT_TRUE(toy.parameter[0].equal(torch::full({3}, 1.F)));
    EXPECT_TRUE(toy.parameter[1].equal(torch::full({1025}, 1.F)));
    EXPECT_TRUE(buffer.equal(torch::zeros({2})));
    EXPECT_EQ(sync.live().numel(), 1040);  // the frozen one is not in the flat buffer; the other is padded to 16
  });
}

TEST(Synchronizer, DifferentModelsOrOptionsAreNamed) {
  run_workers(2, [](const Cluster& cluster) {
    Toy toy({cluster.rank() == 0 ? 3 : 4});
    auto optimizer = plain_sgd(toy, 0.1);
    try {
      const Synchronizer sync(cluster, toy, optimizer);
      ADD_FAILURE();
    } catch (const ClusterError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1 has another model"), std::string::npos) << error.what();
    }
  });
  run_workers(2, [](const Cluster& cluster) {
    Toy toy({3});
    auto optimizer = plain_sgd(toy, 0.1);
    EXPECT_THROW(Synchronizer(cluster, toy, optimizer, {.local_steps = 4 + cluster.rank()}), ClusterError);
  });
}

TEST(Synchronizer, RefusesWhatItCantTrain) {
  Toy toy({3});
  auto optimizer = plain_sgd(toy, 0.1);
  Synchronizer sync(Cluster::alone(), toy, optimizer);
  EXPECT_THROW(sync.step(-1), OptionError);
  EXPECT_THROW(sync.step(std::nan("")), OptionError);

  Toy frozen({3});
  frozen.parameter[0].set_requires_grad(false);
  auto nothing = plain_sgd(frozen, 0.1);
  EXPECT_THROW(Synchronizer(Cluster::alone(), frozen, nothing), OptionError);

  Toy mixed({3, 4});
  mixed.parameter[1].set_data(torch::zeros({4}, torch::kDouble));
  auto both = plain_sgd(mixed, 0.1);
  EXPECT_THROW(Synchronizer(Cluster::alone(), mixed, both), OptionError);

  Toy any({3});
  torch::optim::LBFGS lbfgs(any.parameters());
  EXPECT_THROW(Synchronizer(Cluster::alone(), any, lbfgs), OptionError);

  Toy thawed({3, 4});
  thawed.parameter[1].set_requires_grad(false);
  auto half = plain_sgd(thawed, 0.1);
  Synchronizer late(Cluster::alone(), thawed, half);
  thawed.parameter[1].set_requires_grad(true);
  EXPECT_THROW(late.step(), OptionError);
}

// finish() in the middle of a round: with α=1, β=0 and no guards, constant gradients move everybody by the average of
// all steps that were taken, not only of those that had been exchanged.
TEST(Synchronizer, FinishLosesNoProgress) {
  for (const Strategy strategy : {Strategy::kLocalSgd, Strategy::kSlowMo, Strategy::kCo2Paper, Strategy::kCo2}) {
    for (int steps = 1; steps <= 13; ++steps) {
      run_workers(2, [&](const Cluster& cluster) {
        Toy toy({5, 40});
        auto optimizer = plain_sgd(toy, 1);
        Options options{.strategy = strategy, .local_steps = 4, .momentum = 0, .penalty = false, .clip = 0};
        if (strategy == Strategy::kCo2) options.fragments = 2;
        Synchronizer sync(cluster, toy, optimizer, options);
        for (int i = 0; i < steps; ++i) {
          toy.set_gradients(cluster.rank() == 0 ? 1 : 3);
          sync.step();
        }
        sync.finish();
        const double expected = -2.0 * steps;
        EXPECT_TRUE(torch::allclose(toy.parameter[1], torch::full({40}, expected)))
            << name(strategy) << " after " << steps << " steps: " << toy.parameter[1][0].item<double>();
        EXPECT_TRUE(sync.consensus().equal(sync.live()));
      });
    }
  }
}

// The same in few bits, with gradients that do not fit into them.
TEST(Synchronizer, RoundingLosesNoProgress) {
  for (const Wire wire : {Wire::kInt8, Wire::kInt4, Wire::kInt2}) {
    for (const int steps : {1, 2, 13, 40}) {
      run_workers(2, [&](const Cluster& cluster) {
        Toy toy({5, 400});
        auto optimizer = plain_sgd(toy, 1);
        Synchronizer sync(cluster, toy, optimizer,
                          {.local_steps = 4, .fragments = 2, .momentum = 0, .penalty = false, .clip = 0, .wire = wire});
        const at::Tensor uneven = torch::linspace(0.01, 1, 400).pow(3);
        for (int i = 0; i < steps; ++i) {
          toy.set_gradients(1);
          toy.parameter[1].mutable_grad() = (cluster.rank() == 0 ? 1 : 3) * uneven;
          sync.step(3);
        }
        const bool exchanged = steps >= 4;
        EXPECT_EQ(sync.consensus().count_nonzero().item<int>() > 0, exchanged && steps > 4);
        sync.finish();
        EXPECT_TRUE(torch::allclose(toy.parameter[1], -2.0 * steps * uneven, 1e-5, 1e-5))
            << name(wire) << " after " << steps << " steps";
      });
    }
  }
}

TEST(Synchronizer, TrainingGoesOnAfterFinish) {
  run_workers(2, [](const Cluster& cluster) {
    Toy toy({40});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, {.local_steps = 4, .fragments = 2, .momentum = 0, .clip = 0});
    for (int part = 1; part <= 3; ++part) {
      for (int i = 0; i < 5; ++i) {
        toy.set_gradients(1 + 2 * cluster.rank());
        sync.step();
      }
      sync.finish();
      EXPECT_FLOAT_EQ(toy.parameter[0][7].item<float>(), -10.F * part);
    }
  });
}

TEST(Synchronizer, WithConsensusShowsItAndPutsTheLiveParametersBack) {
  run_workers(2, [](const Cluster& cluster) {
    Toy toy({4});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, {.strategy = Strategy::kLocalSgd, .local_steps = 2});
    for (int i = 0; i < 3; ++i) {
      toy.set_gradients(1 + 2 * cluster.rank());
      sync.step();
    }
    float seen = 0;
    sync.with_consensus([&] { seen = toy.parameter[0][0].item<float>(); });
    EXPECT_EQ(seen, -4);
    EXPECT_EQ(toy.parameter[0][0].item<float>(), -5 - 2 * cluster.rank());
    EXPECT_THROW(sync.with_consensus([] { throw std::runtime_error("body"); }), std::runtime_error);
    EXPECT_EQ(toy.parameter[0][0].item<float>(), -5 - 2 * cluster.rank());
  });
}

TEST(Synchronizer, WhatReadsTheConsensusMustNotChangeIt) {
  for (const bool on_all : {false, true}) {
    run_workers(2, [&](const Cluster& cluster) {
      Toy toy({33});
      auto optimizer = plain_sgd(toy, 0.1);
      Synchronizer sync(cluster, toy, optimizer, {.strategy = Strategy::kCo2, .local_steps = 2});
      toy.set_gradients(1);
      sync.step();
      const auto write = [&] {
        const at::NoGradGuard no_grad;
        if (on_all || cluster.rank() == 0) toy.parameter[0].data().add_(1e-3);
      };
      if (on_all || cluster.rank() == 0) {
        EXPECT_THROW(sync.with_consensus(write), ConsensusError);
        EXPECT_THROW(sync.step(), ConsensusError);  // there is no way back
      } else {
        EXPECT_NO_THROW(sync.with_consensus(write));
      }
    });
  }
}

TEST(Synchronizer, NothingIsTrainedWhileTheConsensusIsRead) {
  run_workers(2, [](const Cluster& cluster) {
    Toy toy({33});
    auto optimizer = plain_sgd(toy, 0.1);
    Synchronizer sync(cluster, toy, optimizer, {.strategy = Strategy::kCo2, .local_steps = 2});
    toy.set_gradients(1);
    sync.step();
    EXPECT_THROW(sync.with_consensus([&] { sync.step(); }), OptionError);
    EXPECT_THROW(sync.with_consensus([&] { sync.skip_step(); }), OptionError);
    EXPECT_THROW(sync.with_consensus([&] { sync.finish(); }), OptionError);
    EXPECT_THROW(sync.with_consensus([&] { sync.with_consensus([] {}); }), OptionError);
    EXPECT_THROW(sync.with_consensus([&] { sync.discard_gradients(); }), OptionError);
    // And nothing has happened.
    EXPECT_EQ(sync.steps(), 1);
    EXPECT_NEAR(toy.parameter[0][0].item<double>(), -0.1, 1e-6);
    sync.step();
    sync.finish();
    EXPECT_NEAR(toy.parameter[0][0].item<double>(), -0.2, 1e-6);
  });
}

TEST(Synchronizer, SamplesHaveLimits) {
  run_workers(1, [](const Cluster& cluster) {
    Toy toy({3});
    auto optimizer = plain_sgd(toy, 0.1);
    Synchronizer sync(cluster, toy, optimizer, {.strategy = Strategy::kCo2, .local_steps = 2});
    toy.set_gradients(1);
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double samples : {-1.0, 1e38, 1e-40, 1.1e9, 1e-10, std::nan(""), infinity}) {
      EXPECT_THROW(sync.step(samples), OptionError) << samples;
    }
    for (const double samples : {0.0, 1e9, 1e-9}) EXPECT_NO_THROW(sync.step(samples)) << samples;
  });
}

TEST(Synchronizer, BatchNormStatisticsAreAveraged) {
  for (const Strategy strategy : {Strategy::kDdp, Strategy::kLocalSgd, Strategy::kCo2}) {
    run_workers(2, [&](const Cluster& cluster) {
      torch::nn::BatchNorm1d norm(3);
      torch::optim::SGD optimizer(norm->parameters(), 0.01);
      Synchronizer sync(cluster, *norm, optimizer, {.strategy = strategy, .local_steps = 2});
      for (int i = 0; i < 5; ++i) {
        optimizer.zero_grad();
        norm(torch::arange(12, torch::kFloat).view({4, 3}) + cluster.rank() * 2).sum().backward();
        sync.step();
      }
      sync.finish();
      // Constant inputs with means 4.5+c and 6.5+c: the running mean approaches their average on both workers.
      const double weight = 1 - std::pow(0.9, 5);
      const torch::Tensor expected = (torch::arange(3, torch::kFloat) + 5.5) * weight;
      EXPECT_TRUE(torch::allclose(norm->running_mean, expected, 1e-4))
          << name(strategy) << ": " << norm->running_mean << " expected " << expected;
      EXPECT_EQ(norm->num_batches_tracked.item<int>(), 5);
    });
  }
}

/// Statistics forget what was sent while its mean is on its way: what a worker no longer has can't be taken from it.
TEST(Synchronizer, VariancesStayPositive) {
  run_workers(2, [](const Cluster& cluster) {
    torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(3).momentum(0.5));
    torch::optim::SGD optimizer(norm->parameters(), 0.01);
    Synchronizer sync(cluster, *norm, optimizer, {.local_steps = 8, .fragments = 1});
    for (int i = 0; i < 32; ++i) {
      optimizer.zero_grad();
      // Both see less and less; rank 0 begins with a hundred times as much.
      const double scale = i < 8 ? (cluster.rank() == 0 ? 100 : 1) : 0.1;
      norm(scale * torch::arange(12, torch::kFloat).view({4, 3})).sum().backward();
      sync.step();
      EXPECT_GT(norm->running_var.min().item<double>(), 0.1) << i;  // 0.15 with the smallest scale
    }
    sync.finish();
    EXPECT_GT(norm->running_var.min().item<double>(), 0.1);
  });
}

TEST(Synchronizer, StatisticsThatAreNoNumbersPoisonNobody) {
  run_workers(3, [](const Cluster& cluster) {
    torch::nn::BatchNorm1d norm(3);
    torch::optim::SGD optimizer(norm->parameters(), 0.01);
    Synchronizer sync(cluster, *norm, optimizer, {.local_steps = 2});
    for (int i = 0; i < 7; ++i) {
      optimizer.zero_grad();
      norm(torch::arange(12, torch::kFloat).view({4, 3})).sum().backward();
      if (i == 3 && cluster.rank() == 1) norm->running_var.fill_(std::nan(""));
      sync.step();
      EXPECT_TRUE(cluster.rank() == 1 || norm->running_var.isfinite().all().item<bool>()) << i;
    }
    sync.finish();
    // Whoever had none has the others' in the end.
    EXPECT_TRUE(norm->running_mean.isfinite().all().item<bool>());
    EXPECT_TRUE(norm->running_var.isfinite().all().item<bool>());
  });
}

TEST(Synchronizer, AWorkerThatSitsOutKeepsItsProgress) {
  run_workers(2, [](const Cluster& cluster) {
    Toy toy({16});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer,
                      {.local_steps = 2, .fragments = 1, .delay = 0, .momentum = 0, .clip = 0, .wire = Wire::kPlain});
    for (int i = 0; i < 2; ++i) {
      toy.set_gradients(1 + cluster.rank());
      sync.step(cluster.rank() == 0 ? 1 : 0);
    }
    EXPECT_EQ(sync.consensus()[0].item<float>(), -2);                        // rank 0's progress alone
    EXPECT_EQ(sync.live()[0].item<float>(), cluster.rank() == 0 ? -2 : -6);  // rank 1 has its own 4 on top
  });
}

TEST(Synchronizer, AFailedExchangeLeavesConsensusAndLiveParametersAlone) {
  std::atomic<int> carried{std::numeric_limits<int>::max()};  // collectives until the cable is pulled
  const auto wire = [&] {
    if (carried-- <= 0) throw std::runtime_error("cable pulled");
  };
  run_workers(Cluster::in_process(2, wire), [&](const Cluster& cluster) {
    Toy toy({64});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, {.local_steps = 3, .fragments = 1, .wire = Wire::kPlain});
    const auto step = [&] {
      toy.set_gradients(1);
      sync.step();
    };
    cluster.communicator("test")->barrier()->wait();
    // Two for each exchange, those launched after the steps 3 and 6; the one of step 9 fails, and is due after step 12.
    carried = 4;
    for (int i = 0; i < 11; ++i) step();
    // Everybody moves by 1 per step, so that the average of 3 steps is what each has done: two of them are agreed on.
    EXPECT_TRUE(sync.consensus().equal(torch::full({64}, -6.F))) << sync.consensus();
    EXPECT_TRUE(sync.live().equal(torch::full({64}, -11.F))) << sync.live();
    try {
      step();
      ADD_FAILURE();
    } catch (const CommError& error) {
      EXPECT_EQ(error.where().round, 2);
      EXPECT_EQ(error.cause(), "cable pulled");
    }
    EXPECT_EQ(sync.steps(), 12);
    EXPECT_TRUE(sync.consensus().equal(torch::full({64}, -6.F))) << sync.consensus();
    EXPECT_TRUE(sync.live().equal(torch::full({64}, -12.F))) << sync.live();  // its own step, nothing of the exchange
  });
}

TEST(Synchronizer, ReportsMemoryInModelCopies) {
  const auto measure = [](const Cluster& cluster, Wire wire, double outer_state, double in_flight) {
    Toy toy({16 * 1200});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, {.local_steps = 4, .fragments = 4, .wire = wire});
    for (int i = 0; i < 12; ++i) {
      toy.set_gradients(1);
      sync.step();
    }
    const auto copies = [&](std::int64_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(sync.live().nbytes());
    };
    EXPECT_EQ(copies(sync.memory().parameters), 1);
    EXPECT_EQ(copies(sync.memory().gradients), 1);
    EXPECT_EQ(copies(sync.memory().inner_state), 0);
    EXPECT_EQ(copies(sync.memory().outer_state), outer_state);
    EXPECT_NEAR(copies(sync.memory().communication), in_flight, 0.01);
    sync.finish();
  };
  run_workers(2, [&](const Cluster& cluster) {
    measure(cluster, Wire::kPlain, 2, 0.5);  // 2/P in flight
    // What rounding leaves behind; and in flight blocks: sent, to add up, of the sum, and of all sums.
    measure(cluster, Wire::kInt4, 3, 0.25 * (3.5 * 4.25 / 32));
  });
}

TEST(Synchronizer, ExposedTimeIsMeasuredWhenTheWireIsSlow) {
  std::atomic<bool> slow{false};
  const auto wire = [&] {
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  run_workers(Cluster::in_process(2, wire), [&](const Cluster& cluster) {
    Toy toy({64});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, {.strategy = Strategy::kLocalSgd, .local_steps = 1});
    cluster.communicator("test")->barrier()->wait();
    slow = true;
    toy.set_gradients(1);
    sync.step();
    const Overlap overlap = sync.trace().total();
    EXPECT_GT(overlap.exposed_seconds, 0);
    EXPECT_GT(overlap.transfer_seconds, 0);
    EXPECT_LT(overlap.overlap(), 0.5);         // a blocking exchange hides next to nothing
    EXPECT_EQ(overlap.bytes, 64 * 4 + 5 * 8);  // and a header of five numbers
  });
}

}  // namespace
}  // namespace co2
