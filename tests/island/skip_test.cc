// Steps that are left out, backward passes that are taken back, and what comes after a failure.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/unit_model.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;
using test::unit_batch;
using test::UnitModel;

constexpr int kSteps = 6;

Options ddp(int stage, int accumulation = 1) {
  return {.strategy = Strategy::kDdp, .accumulation_steps = accumulation, .bucket_bytes = 1024, .zero = stage};
}

/// One worker's training, for `one_step` to do as it likes.
struct Training {
  UnitModel model{4};
  torch::optim::AdamW optimizer{model.parameters(), torch::optim::AdamWOptions(0.01)};
  Synchronizer sync;
  int rank;
  int passes;
  Training(const Cluster& cluster, const Options& options)
      : sync(cluster, model, optimizer, options), rank(cluster.rank()), passes(options.accumulation_steps) {}
  void backward(int step, double scale = 1) {
    optimizer.zero_grad();
    for (int pass = 0; pass < passes; ++pass) (scale * model.loss(unit_batch(step, pass, rank))).backward();
  }
};

at::Tensor train(int workers, const Options& options, const std::function<void(Training&, int)>& one_step) {
  at::Tensor result;
  run_workers(workers, [&](const Cluster& cluster) {
    Training training(cluster, options);
    for (int step = 0; step < kSteps; ++step) one_step(training, step);
    training.sync.finish();
    if (cluster.rank() == 0) result = training.model.flat_copy();
  });
  return result;
}

void plain_step(Training& t, int step) {
  t.backward(step);
  EXPECT_TRUE(t.sync.step());
}

void without_step_2(Training& t, int step) {
  if (step != 2) plain_step(t, step);
}

TEST(SkippedStep, IsLeftOutByAllWorkersOfAnIsland) {
  enum class Way { kNan, kNoBackward, kForwardOnly, kZeroGrad, kEverybody };
  for (const int stage : {0, 1, 2, 3}) {
    for (const int accumulation : {1, 2}) {
      const Options options = ddp(stage, accumulation);
      const at::Tensor reference = train(3, options, without_step_2);
      for (const Way way : {Way::kNan, Way::kNoBackward, Way::kForwardOnly, Way::kZeroGrad, Way::kEverybody}) {
        SCOPED_TRACE("stage " + std::to_string(stage) + ", " + std::to_string(accumulation) + " passes, way " +
                     std::to_string(static_cast<int>(way)));
        const at::Tensor seen = train(3, options, [&](Training& t, int step) {
          if (step != 2) return plain_step(t, step);
          if (t.rank != 1 && way != Way::kEverybody) {
            t.backward(step);
            EXPECT_FALSE(t.sync.step());
          } else {
            if (way == Way::kNan || way == Way::kEverybody) t.backward(step, std::nan(""));
            if (way == Way::kForwardOnly) t.model.loss(unit_batch(step, 0, t.rank));
            if (way == Way::kZeroGrad) {
              t.backward(step, std::nan(""));
              t.optimizer.zero_grad();
            }
            t.sync.skip_step();
          }
          EXPECT_EQ(t.sync.steps(), 3);
          EXPECT_FALSE(t.model.last->weight.grad().defined());
        });
        EXPECT_TRUE(seen.equal(reference));
      }
    }
  }
}

TEST(SkippedStep, IsLeftOutByOneIslandOfSeveral) {
  for (const int stage : {0, 1, 2, 3}) {
    Options options{
        .strategy = Strategy::kLocalSgd, .local_steps = 3, .bucket_bytes = 1024, .island_size = 2, .zero = stage};
    const auto run = [&](int skipper) {
      return train(4, options, [&](Training& t, int step) {
        t.backward(step, step == 1 && t.rank == skipper ? std::nan("") : 1);
        const bool island_skips = step == 1 && skipper >= 0 && t.rank / 2 == skipper / 2;
        if (step == 1 && t.rank == skipper) {
          t.sync.skip_step();
        } else {
          EXPECT_EQ(t.sync.step(), !island_skips);
        }
      });
    };
    const at::Tensor all = run(-1);
    const at::Tensor first = run(2);
    EXPECT_TRUE(first.equal(run(3))) << "whichever of its workers skips";
    EXPECT_FALSE(first.equal(all));
    EXPECT_TRUE(first.isfinite().all().item<bool>());
  }
}

TEST(SkippedStep, HasNoWeightBetweenWorkers) {
  run_workers(2, [](const Cluster& cluster) {
    torch::nn::Linear model(torch::nn::LinearOptions(1, 1).bias(false));
    model->weight.data().zero_();
    torch::optim::SGD optimizer(model->parameters(), 1.0);
    Synchronizer sync(cluster, *model, optimizer, {.strategy = Strategy::kLocalSgd, .local_steps = 2});
    const auto backward = [&](double gradient) {
      optimizer.zero_grad();
      (model->weight.sum() * gradient).backward();
    };
    // Rank 0 moves by 1 in both steps, rank 1 by 3 in the first.
    backward(cluster.rank() == 0 ? 1 : 3);
    sync.step();
    backward(cluster.rank() == 0 ? 1 : std::nan(""));
    if (cluster.rank() == 0) {
      EXPECT_TRUE(sync.step());
    } else {
      sync.skip_step();
      EXPECT_FALSE(model->weight.grad().defined());
    }
    EXPECT_EQ(sync.steps(), 2);
    EXPECT_NEAR(sync.consensus()[0].item<double>(), -(2 * 2.0 + 1 * 3.0) / 3, 1e-6);
    // A round in which nobody has done anything changes nothing.
    const double before = sync.consensus()[0].item<double>();
    sync.skip_step();
    sync.skip_step();
    EXPECT_EQ(sync.consensus()[0].item<double>(), before);
    EXPECT_EQ(model->weight.item<double>(), before);
  });
}

TEST(DiscardedGradients, AreAsIfBackwardHadNotRun) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int accumulation : {1, 2}) {
      const Options options = ddp(stage, accumulation);
      const at::Tensor reference = train(2, options, plain_step);
      const at::Tensor seen = train(2, options, [&](Training& t, int step) {
        if (step % 2 == 1) {
          t.backward(step + 100, std::nan(""));
          t.sync.discard_gradients();
        }
        if (step == 4) {  // one worker has less to take back than the others
          if (t.rank == 0) t.backward(step + 200);
          t.sync.discard_gradients();
        }
        plain_step(t, step);
      });
      EXPECT_TRUE(seen.equal(reference)) << stage << ", " << accumulation << " passes";
    }
  }
}

TEST(DiscardedGradients, WithoutAnIslandToo) {
  UnitModel model(2);
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  Synchronizer sync(Cluster::alone(), model, optimizer, {.local_steps = 4});
  model.loss(unit_batch(0, 0, 0)).backward();
  sync.discard_gradients();
  EXPECT_FALSE(model.last->weight.grad().defined());
  EXPECT_EQ(sync.steps(), 0);
}

TEST(DiscardedGradients, AreForAllWorkersAtOnce) {
  for (const int stage : {0, 2}) {
    run_workers(2, [&](const Cluster& cluster) {
      Training t(cluster, ddp(stage));
      t.backward(0);
      try {
        cluster.rank() == 0 ? t.sync.discard_gradients() : t.sync.skip_step();
        ADD_FAILURE();
      } catch (const OptionError& error) {
        EXPECT_NE(std::string(error.what()).find("some called it while others"), std::string::npos) << error.what();
      }
      plain_step(t, 1);
    });
  }
}

TEST(TooManyPasses, AreAnErrorThatNamesTheWaysOut) {
  for (const int stage : {0, 1, 2}) {
    const at::Tensor reference = train(2, ddp(stage), without_step_2);
    const at::Tensor seen = train(2, ddp(stage), [&](Training& t, int step) {
      if (step != 2) return plain_step(t, step);
      t.backward(step);
      for (const auto& again : std::vector<std::function<void()>>{[&] { t.backward(step); }, [&] { t.sync.step(); }}) {
        try {
          again();
          ADD_FAILURE();
        } catch (const OptionError& error) {
          const std::string text = error.what();
          EXPECT_NE(text.find("skip_step()"), std::string::npos) << text;
          EXPECT_NE(text.find("discard_gradients()"), std::string::npos) << text;
        }
      }
      t.sync.discard_gradients();
    });
    EXPECT_TRUE(seen.equal(reference)) << stage;
  }
}

/// A generator and its critic, whose gradients are a by-product when the generator learns.
struct Adversaries {
  torch::nn::Sequential generator{torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Linear(8, 5)};
  torch::nn::Sequential critic{torch::nn::Linear(5, 9), torch::nn::Tanh(), torch::nn::Linear(9, 1)};
  torch::optim::AdamW learns{generator->parameters(), torch::optim::AdamWOptions(0.01)};
  torch::optim::AdamW judges{critic->parameters(), torch::optim::AdamWOptions(0.01)};
  Adversaries() {
    auto random = at::detail::createCPUGenerator(5);
    const at::NoGradGuard no_grad;
    for (const auto& all : {generator->parameters(), critic->parameters()}) {
      for (const at::Tensor& p : all) p.normal_(0, 0.3, random);
    }
  }
  void critic_backward(int step) {
    judges.zero_grad();
    const at::Tensor fake = generator->forward(noise(step));
    (critic->forward(noise(step + 50, 5)).square().mean() - critic->forward(fake.detach()).mean()).backward();
  }
  void generator_backward(int step) {
    learns.zero_grad();
    critic->forward(generator->forward(noise(step + 100))).mean().backward();
  }
  static at::Tensor noise(int step, int width = 3) {
    auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step + 1));
    return at::randn({6, width}, random);
  }
  at::Tensor all() const {
    std::vector<at::Tensor> copies;
    for (const auto& parameters : {generator->parameters(), critic->parameters()}) {
      for (const at::Tensor& p : parameters) copies.push_back(p.detach().reshape({-1}));
    }
    return at::cat(copies);
  }
};

// All workers see the same data, so that they train as one worker alone does.
TEST(DiscardedGradients, LetTwoModelsLearnFromEachOther) {
  Adversaries alone;
  for (int step = 0; step < kSteps; ++step) {
    alone.critic_backward(step);
    alone.judges.step();
    alone.generator_backward(step);
    alone.learns.step();
  }
  for (const int stage : {0, 1, 2}) {
    for (const bool freeze : {false, true}) {
      run_workers(2, [&](const Cluster& cluster) {
        Adversaries both;
        Synchronizer learner(cluster, *both.generator, both.learns, ddp(stage));
        Synchronizer judge(cluster, *both.critic, both.judges, ddp(stage));
        const auto critic_trains = [&](bool trains) {
          for (at::Tensor& p : both.critic->parameters()) p.set_requires_grad(trains);
        };
        for (int step = 0; step < kSteps; ++step) {
          both.critic_backward(step);
          judge.step();
          if (freeze) critic_trains(false);
          both.generator_backward(step);
          if (freeze) critic_trains(true);
          learner.step();
          if (!freeze) judge.discard_gradients();
        }
        learner.finish();
        judge.finish();
        EXPECT_TRUE(at::allclose(both.all(), alone.all(), 1e-5, 1e-6)) << stage << freeze;
      });
    }
  }
}

TEST(AfterAFailure, BackwardAndStepTellTheSameFailure) {
  for (const int stage : {0, 1, 2, 3}) {
    std::atomic<bool> broken{false};
    const auto wire = [&] {
      if (broken) throw std::runtime_error("cable pulled");
    };
    run_workers(Cluster::in_process(2, wire), [&](const Cluster& cluster) {
      Training t(cluster, ddp(stage));
      plain_step(t, 0);
      cluster.communicator("test")->barrier()->wait();
      broken = true;
      int failures = 0;
      const auto fails = [&](const std::function<void()>& body) {
        try {
          body();
        } catch (const CommError& error) {
          ++failures;
          EXPECT_EQ(error.cause(), "cable pulled");
        }  // and nothing else
      };
      for (int step = 1; step < 6; ++step) {
        fails([&] { t.backward(step); });
        const int before = failures;
        fails([&] { t.sync.step(); });
        EXPECT_EQ(failures, before + 1);
        fails([&] { t.sync.skip_step(); });
        fails([&] { t.sync.discard_gradients(); });
        fails([&] { t.sync.finish(); });
        EXPECT_EQ(failures, before + 4);
      }
    });
  }
}

}  // namespace
}  // namespace co2
