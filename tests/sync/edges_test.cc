// What users do that a plain loop does not: schedules, other scales, rates that differ, parameters that are frozen for
// a while, collectives that fail. Nothing that a worker has learned may be lost, and nothing may go wrong in silence.
#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <mutex>
#include <thread>

#include "support/toy.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::plain_sgd;
using test::run_workers;
using test::Toy;

using Schedule = std::function<double(int)>;

void set_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

struct Named {
  const char* name;
  Schedule rate;
};

std::vector<Named> schedules(int steps) {
  const double end = steps;
  return {{"linear to 0", [=](int t) { return 1 - (t + 1) / end; }},
          {"cosine to 0", [=](int t) { return 0.5 + 0.5 * std::cos(M_PI * (t + 1) / end); }},
          {"warm-up", [=](int t) { return (t + 1) / end; }},
          {"from 0", [=](int t) { return t / end; }},
          {"restart x100", [=](int t) { return t < steps / 2 ? 0.01 : 1.0; }},
          {"pauses", [](int t) { return t / 7 % 3 == 1 ? 0.0 : 1.0; }}};
}

// A gradient of 1: every worker's steps add up to the sum of the rates, whatever the schedule, if progress arrives at
// the scale at which it was made.
TEST(Schedules, LoseNoProgress) {
  for (const Strategy strategy : {Strategy::kCo2, Strategy::kCo2Paper, Strategy::kSlowMo, Strategy::kLocalSgd}) {
    for (const int steps : {240, 250}) {
      for (const Named& schedule : schedules(steps)) {
        run_workers(2, [&](const Cluster& cluster) {
          Toy toy({40, 24});
          auto optimizer = plain_sgd(toy, 1);
          Synchronizer sync(cluster, toy, optimizer,
                            {.strategy = strategy, .local_steps = 24, .momentum = 0, .penalty = false});
          double expected = 0;
          for (int t = 0; t < steps; ++t) {
            expected -= schedule.rate(t);
            set_rate(optimizer, schedule.rate(t));
            toy.set_gradients(1);
            sync.step();
          }
          sync.finish();
          EXPECT_NEAR(sync.live()[0].item<double>(), expected, 1e-4 * std::abs(expected))
              << name(strategy) << ", " << schedule.name << ", " << steps << " steps";
          EXPECT_EQ(sync.clipping().clipped, 0) << name(strategy) << ", " << schedule.name;
        });
      }
    }
  }
}

// What momentum remembers is rescaled: it goes on at the rate of the round that it is added to.
TEST(Schedules, MomentumFollowsTheRate) {
  run_workers(2, [](const Cluster& cluster) {
    Toy toy({16});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, {.strategy = Strategy::kSlowMo, .local_steps = 2, .momentum = 0.5});
    double x = 0;
    double m = 0;
    for (int round = 0; round < 6; ++round) {
      const double rate = round % 2 == 0 ? 1 : 0.1;
      set_rate(optimizer, rate);
      for (int i = 0; i < 2; ++i) {
        toy.set_gradients(1);
        sync.step();
      }
      m = 0.5 * m + 2;
      x -= rate * m;
      EXPECT_NEAR(sync.consensus()[0].item<double>(), x, 1e-5) << "round " << round;
    }
  });
}

/// How far a worker gets in 240 steps with the default clip, and with none.
struct Distances {
  double clipped;
  double unclipped;
  Clipping clipping;
};
Distances distances(const std::function<std::unique_ptr<torch::optim::Optimizer>(Toy&)>& make_optimizer,
                    const std::function<double(int)>& gradient, const Options& base) {
  Distances result{};
  for (const bool clip : {true, false}) {
    run_workers(2, [&](const Cluster& cluster) {
      Toy toy({64, 32});
      const auto optimizer = make_optimizer(toy);
      Options options = base;
      if (!clip) options.clip = 0;
      Synchronizer sync(cluster, toy, *optimizer, options);
      for (int t = 0; t < 240; ++t) {
        toy.set_gradients(gradient(t));
        sync.step();
      }
      sync.finish();
      if (cluster.rank() != 0) return;
      (clip ? result.clipped : result.unclipped) = sync.live()[0].item<double>();
      if (clip) result.clipping = sync.clipping();
    });
  }
  return result;
}

std::unique_ptr<torch::optim::Optimizer> sgd(Toy& toy, double rate, double momentum = 0) {
  return std::make_unique<torch::optim::SGD>(toy.parameters(), torch::optim::SGDOptions(rate).momentum(momentum));
}

void expect_untouched(const Distances& d, const std::string& what) {
  EXPECT_EQ(d.clipped, d.unclipped) << what;
  EXPECT_GT(d.clipping.exchanges, 0) << what;
  EXPECT_EQ(d.clipping.clipped, 0) << what;
}

TEST(Clip, LeavesACoherentGradientAlone) {
  for (const Strategy strategy : {Strategy::kCo2, Strategy::kCo2Paper}) {
    for (const int local_steps : {1, 4, 24}) {
      const Distances d = distances([](Toy& toy) { return sgd(toy, 0.1); }, [](int) { return 1.0; },
                                    {.strategy = strategy, .local_steps = local_steps});
      expect_untouched(d, std::string(name(strategy)));
    }
  }
  // And outer momentum really adds to it: 1 / (1 - β) of the way, less what it has yet to give at the end.
  const Distances d =
      distances([](Toy& toy) { return sgd(toy, 0.1); }, [](int) { return 1.0; }, {.local_steps = 12, .momentum = 0.3});
  EXPECT_GT(d.clipped / (-0.1 * 240), 1.3);
}

TEST(Clip, LeavesSgdAtAnyScaleAlone) {
  for (const double gradient : {1e-6, 1.0, 50.0, 1e6}) {
    for (const double momentum : {0.0, 0.9, 0.99}) {
      const Distances d = distances([&](Toy& toy) { return sgd(toy, 0.1, momentum); }, [&](int) { return gradient; },
                                    {.local_steps = 6, .momentum = 0.3});
      expect_untouched(d, fmt::format("gradient {}, momentum {}", gradient, momentum));
      if (momentum > 0) continue;
      EXPECT_LE(d.clipped, -0.1 * 240 * gradient * 0.999);
    }
  }
}

TEST(Clip, LeavesAdamWAlone) {
  const auto adamw = [](Toy& toy) -> std::unique_ptr<torch::optim::Optimizer> {
    return std::make_unique<torch::optim::AdamW>(toy.parameters(), torch::optim::AdamWOptions(1e-3));
  };
  const auto noisy = [](int t) { return std::sin(12.9898 * (t + 1)) * 3 + 0.2; };
  for (const int local_steps : {1, 6, 24}) {
    expect_untouched(distances(adamw, noisy, {.local_steps = local_steps}), "adamw");
    expect_untouched(distances(adamw, [](int t) { return t < 120 ? 1.0 : 0.01; }, {.local_steps = local_steps}),
                     "adamw, gradients that get small");
  }
}

TEST(Clip, TakesABurst) {
  // One step's gradient is a thousand times the others', on both workers.
  const auto gradient = [](int t) { return t == 130 ? 1000.0 : 1.0; };
  const Distances d =
      distances([](Toy& toy) { return sgd(toy, 0.1); }, gradient, {.local_steps = 12, .fragments = 4, .momentum = 0});
  EXPECT_NEAR(d.unclipped, -0.1 * (239 + 1000), 1e-3);
  // 12 steps of the usual length, four times over, instead of the 1011 that the round would have had.
  EXPECT_NEAR(d.clipped, -0.1 * (228 + 48), 1.0);
  EXPECT_EQ(d.clipping.clipped, 4);  // the four fragments
  EXPECT_NEAR(d.clipping.lost / 4, 1 - 48.0 / 1011, 0.05);
}

// Who sat out keeps its progress, and comes back with that of many rounds at once.
TEST(Clip, LeavesProgressThatWasKeptAlone) {
  run_workers(2, [](const Cluster& cluster) {
    Toy toy({64});
    auto optimizer = plain_sgd(toy, 0.01);
    Synchronizer sync(cluster, toy, optimizer, {.local_steps = 4, .momentum = 0});
    for (int t = 0; t < 400; ++t) {
      toy.set_gradients(1);
      sync.step(t >= 40 && t < 240 ? 0 : 1);
    }
    sync.finish();
    EXPECT_NEAR(sync.live()[0].item<double>(), -4, 1e-4);
    EXPECT_EQ(sync.clipping().clipped, 0);
  });
}

TEST(Clip, CountsWhatTheOtherModesTake) {
  for (const ClipMode mode : {ClipMode::kValue, ClipMode::kNorm}) {
    run_workers(2, [&](const Cluster& cluster) {
      Toy toy({64});
      auto optimizer = plain_sgd(toy, 0.1);
      Synchronizer sync(cluster, toy, optimizer,
                        {.strategy = Strategy::kSlowMo,
                         .local_steps = 2,
                         .momentum = 0,
                         .clip = mode == ClipMode::kValue ? 1.0 : 8.0,  // the norm of 64 ones
                         .clip_mode = mode});
      for (int t = 0; t < 4; ++t) {
        toy.set_gradients(t < 2 ? 0.25 : 2);  // m = 0.5, then 4: a quarter of it is left
        sync.step();
      }
      EXPECT_EQ(sync.clipping().exchanges, 2);
      EXPECT_EQ(sync.clipping().clipped, 1);
      EXPECT_NEAR(sync.clipping().lost, 0.75, 1e-6);
      EXPECT_NEAR(sync.consensus()[0].item<double>(), -0.1 * 1.5, 1e-6);
    });
  }
}

// Rates that differ between workers: what is applied is what all of them sent, at a rate that all of them know.
TEST(Rates, MayDifferBetweenWorkers) {
  constexpr int kWorkers = 3;
  for (const Strategy strategy : {Strategy::kCo2, Strategy::kSlowMo, Strategy::kCo2Paper}) {
    std::vector<std::vector<at::Tensor>> seen(kWorkers);
    run_workers(kWorkers, [&](const Cluster& cluster) {
      Toy toy({40, 24});
      auto optimizer = plain_sgd(toy, 0.1 * (cluster.rank() + 1));
      Synchronizer sync(cluster, toy, optimizer, {.strategy = strategy, .local_steps = 6});
      for (int t = 0; t < 60; ++t) {
        set_rate(optimizer, 0.1 * (cluster.rank() + 1) * (1 + t % 5));
        toy.set_gradients(1 + cluster.rank());
        sync.step(1 + cluster.rank());
        seen[static_cast<std::size_t>(cluster.rank())].push_back(sync.consensus().clone());
      }
    });
    for (int rank = 1; rank < kWorkers; ++rank) {
      for (std::size_t t = 0; t < seen[0].size(); ++t) {
        ASSERT_TRUE(at::equal(seen[static_cast<std::size_t>(rank)][t], seen[0][t])) << name(strategy) << " " << t;
      }
    }
    EXPECT_LT(seen[0].back()[0].item<float>(), -1);
  }
}

TEST(Rates, MustBeNumbers) {
  for (const double rate : {-0.1, std::nan(""), HUGE_VAL}) {
    Toy toy({4});
    auto optimizer = plain_sgd(toy, 0.1);
    Synchronizer sync(Cluster::alone(), toy, optimizer, {.local_steps = 2});
    set_rate(optimizer, rate);
    toy.set_gradients(1);
    EXPECT_THROW(sync.step(), OptionError) << rate;
  }
}

// Momentum is kept in units of the rate, in float32: one that has become next to nothing must not end the run.
TEST(Rates, MayBecomeNextToNothing) {
  for (const Strategy strategy : {Strategy::kCo2, Strategy::kCo2Paper, Strategy::kSlowMo}) {
    run_workers(2, [&](const Cluster& cluster) {
      Toy toy({40});
      auto optimizer = plain_sgd(toy, 1);
      Synchronizer sync(cluster, toy, optimizer, {.strategy = strategy, .local_steps = 4, .momentum = 0.3});
      for (int t = 0; t < 120; ++t) {
        set_rate(optimizer, std::pow(0.4, t));  // 1e-47 in the end
        toy.set_gradients(1);
        sync.step();
      }
      sync.finish();
      EXPECT_TRUE(toy.parameter[0].isfinite().all().item<bool>());
      EXPECT_LT(toy.parameter[0].max().item<double>(), -1.6);  // of 1.667, before momentum adds to it
    });
  }
}

TEST(Consensus, ThatDiffersIsAnErrorOnAllWorkers) {
  std::atomic<int> noticed{0};
  run_workers(3, [&](const Cluster& cluster) {
    Toy toy({4096});
    auto optimizer = plain_sgd(toy, 0.1);
    Synchronizer sync(cluster, toy, optimizer, {.local_steps = 1});
    try {
      for (int t = 0; t < 300; ++t) {
        if (t == 10 && cluster.rank() == 1) sync.consensus()[1234].add_(1e-6);  // one element, a few bits
        toy.set_gradients(1);
        sync.step();
      }
      ADD_FAILURE() << "nobody noticed";
    } catch (const ConsensusError& error) {
      ++noticed;
      EXPECT_EQ(error.exit_code(), 6);
    }
    EXPECT_THROW(sync.step(), ConsensusError);
    EXPECT_THROW(sync.finish(), ConsensusError);
  });
  EXPECT_EQ(noticed, 3);
}

TEST(Consensus, ThatDiffersIsFoundByFinishAtTheLatest) {
  run_workers(3, [](const Cluster& cluster) {
    Toy toy({4096});
    auto optimizer = plain_sgd(toy, 0.1);
    Synchronizer sync(cluster, toy, optimizer, {.local_steps = 4});
    for (int t = 0; t < 8; ++t) {
      toy.set_gradients(1);
      sync.step();
    }
    if (cluster.rank() == 1) sync.consensus()[4000].add_(1000);
    EXPECT_THROW(sync.finish(), ConsensusError);
  });
}

// A parameter that nobody trains for a while stays where it is, and loses what momentum remembered of it.
TEST(Frozen, ParametersDoNotMove) {
  for (const Strategy strategy : {Strategy::kCo2, Strategy::kCo2Paper, Strategy::kSlowMo, Strategy::kDiLoCo}) {
    for (const Wire wire : {Wire::kPlain, Wire::kBfloat16}) {
      run_workers(2, [&](const Cluster& cluster) {
        Toy toy({48, 100, 20});
        auto optimizer = plain_sgd(toy, 0.1);
        Options options{.strategy = strategy, .local_steps = 6, .momentum = 0.5, .wire = wire};
        if (strategy == Strategy::kCo2) options.fragments = 3;
        Synchronizer sync(cluster, toy, optimizer, options);
        const auto train = [&](int steps, bool frozen) {
          for (int t = 0; t < steps; ++t) {
            toy.set_gradients(1);
            toy.parameter[1].set_requires_grad(!frozen);
            if (frozen) toy.parameter[1].mutable_grad().reset();
            sync.step();
          }
        };
        train(24, false);
        train(wire == Wire::kPlain ? 12 : 36, true);  // what was in flight arrives, and what rounding left behind
        const at::Tensor before = toy.parameter[1].detach().clone();
        const at::Tensor other = toy.parameter[0].detach().clone();
        train(24, true);
        EXPECT_TRUE(at::equal(toy.parameter[1], before))
            << name(strategy) << " moved by " << (toy.parameter[1] - before).abs().max().item<float>();
        EXPECT_FALSE(at::equal(toy.parameter[0], other));
        train(12, false);
        EXPECT_FALSE(at::equal(toy.parameter[1], before));
      });
    }
  }
}

/// A network of several groups, one of which breaks. In-process every group has a thread of its own.
class Groups {
 public:
  std::function<void()> wire() {
    return [this] {
      const std::lock_guard lock(mutex_);
      const auto id = std::this_thread::get_id();
      auto found = std::find(threads_.begin(), threads_.end(), id);
      if (found == threads_.end()) found = threads_.insert(threads_.end(), id);
      if (found - threads_.begin() == broken_) throw std::runtime_error("cable pulled");
    };
  }
  void break_one(std::ptrdiff_t group) {
    const std::lock_guard lock(mutex_);
    broken_ = group;
  }
  std::ptrdiff_t count() const { return static_cast<std::ptrdiff_t>(threads_.size()); }

 private:
  std::mutex mutex_;
  std::vector<std::thread::id> threads_;
  std::ptrdiff_t broken_ = -1;
};

// Whichever group it is: the failure is met within a round, and then in every call.
TEST(Failures, OfAnyGroupAreMetAgainInEveryCall) {
  std::ptrdiff_t groups = 1;
  for (std::ptrdiff_t broken = 0; broken < groups; ++broken) {
    Groups network;
    run_workers(Cluster::in_process(2, network.wire()), [&](const Cluster& cluster) {
      torch::nn::BatchNorm1d model(3);
      torch::optim::SGD optimizer(model->parameters(), 0.01);
      Synchronizer sync(cluster, *model, optimizer, {.max_local_steps = 8});
      const auto step = [&] {
        optimizer.zero_grad();
        model(torch::randn({4, 3})).sum().backward();
        sync.step();
      };
      for (int t = 0; t < 20; ++t) step();
      cluster.communicator("test")->barrier()->wait();
      if (cluster.rank() == 0) groups = network.count() - 1;  // without the test's own
      network.break_one(broken);
      int taken = 0;
      try {
        for (; taken < 40; ++taken) step();
        ADD_FAILURE() << "group " << broken << " broke, and nobody noticed";
      } catch (const CommError&) {
        EXPECT_LE(taken, 24);
      }
      EXPECT_THROW(step(), CommError);
      EXPECT_THROW(sync.with_consensus([] {}), CommError);
      EXPECT_THROW(sync.finish(), CommError);
    });
  }
  EXPECT_GE(groups, 3);  // data, headers, pace
}

// Buffers of a long round: their failure does not wait for its end.
TEST(Failures, OfBuffersAreMetInTheNextStep) {
  Groups network;
  run_workers(Cluster::in_process(2, network.wire()), [&](const Cluster& cluster) {
    torch::nn::BatchNorm1d model(3);
    torch::optim::SGD optimizer(model->parameters(), 0.01);
    Synchronizer sync(cluster, *model, optimizer, {.strategy = Strategy::kCo2, .local_steps = 40, .fragments = 1});
    const auto step = [&] {
      optimizer.zero_grad();
      model(torch::randn({4, 3})).sum().backward();
      sync.step();
    };
    for (int t = 0; t < 39; ++t) step();
    cluster.communicator("test")->barrier()->wait();
    network.break_one(1);  // that of the data, which is the second, after that for small numbers
    int taken = 0;
    EXPECT_THROW(
        for (; taken < 40; ++taken) {
          step();
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        },
        CommError);
    EXPECT_LE(taken, 10);
  });
}

TEST(Clock, EvaluationsAreNoComputing) {
  Toy toy({16});
  auto optimizer = plain_sgd(toy, 0.1);
  Synchronizer sync(Cluster::alone(), toy, optimizer, {.local_steps = 2});
  const auto step = [&] {
    toy.set_gradients(1);
    sync.step();
  };
  const auto evaluate = [] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); };
  for (int t = 0; t < 4; ++t) step();
  sync.with_consensus(evaluate);
  for (int t = 0; t < 4; ++t) step();
  evaluate();
  sync.restart_clock();
  for (int t = 0; t < 4; ++t) step();
  const double without = sync.trace().seconds(SpanKind::kCompute);
  evaluate();
  step();
  EXPECT_GT(sync.trace().seconds(SpanKind::kCompute) - without, 3 * without);
}

}  // namespace
}  // namespace co2
