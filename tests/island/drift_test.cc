// Workers that share gradients must go on with the same parameters.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>
#include <string>
#include <vector>

#include "support/toy.h"
#include "support/unit_model.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::plain_sgd;
using test::run_workers;
using test::Toy;

/// Does something to a worker before a step.
using Disturb = std::function<void(int step, int rank, Toy& toy, torch::optim::SGD& optimizer)>;

struct Outcome {
  std::string error;  ///< its first words, or "none"
  int step = -1;
};

/// Of every worker, after at most 20 steps and finish() with gradients that differ.
std::vector<Outcome> train(const Options& options, int workers, const Disturb& disturb, double momentum = 0,
                           const std::vector<std::int64_t>& sizes = {7, 100'003}) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(workers));
  run_workers(workers, [&](const Cluster& cluster) {
    Toy toy(sizes, 1);
    torch::optim::SGD optimizer(toy.parameters(), torch::optim::SGDOptions(0.01).momentum(momentum));
    Synchronizer sync(cluster, toy, optimizer, options);
    Outcome& outcome = outcomes[static_cast<std::size_t>(cluster.rank())];
    try {
      for (outcome.step = 0; outcome.step < 20; ++outcome.step) {
        if (disturb) disturb(outcome.step, cluster.rank(), toy, optimizer);
        torch::Tensor loss = torch::zeros({});
        for (const at::Tensor& p : toy.parameter) loss = loss + (p * (1 + cluster.rank())).sum();
        optimizer.zero_grad();
        loss.backward();
        sync.step();
      }
      sync.finish();
      outcome.error = "none";
    } catch (const OptionError& error) {
      outcome.error = std::string("option: ") + error.what();
    } catch (const ConsensusError& error) {
      outcome.error = std::string("consensus: ") + error.what();
    }
  });
  return outcomes;
}

void expect_all(const std::vector<Outcome>& outcomes, const std::string& error, int first, int last) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_NE(outcome.error.find(error), std::string::npos) << outcome.error;
    EXPECT_GE(outcome.step, first);
    EXPECT_LE(outcome.step, last);
  }
}

const std::vector<Options>& sharing() {
  static const std::vector<Options> all{
      {.strategy = Strategy::kDdp},
      {.strategy = Strategy::kCo2, .local_steps = 4, .island_size = 2},
  };
  return all;
}

TEST(Drift, WorkersThatDoTheSameAreLeftAlone) {
  for (const Options& options : sharing()) expect_all(train(options, 4, nullptr, 0.9), "none", 20, 20);
}

TEST(Drift, RatesThatDifferAreNamedInTheSameStep) {
  const Disturb slower = [](int step, int rank, Toy&, torch::optim::SGD& optimizer) {
    optimizer.param_groups()[0].options().set_lr(step >= 5 && rank == 1 ? 0.005 : 0.01);
  };
  for (Options options : sharing()) {
    expect_all({train(options, 2, slower)}, "option: the learning rate of parameter group 0 is from 0.005 to 0.01", 5,
               5);
    options.zero = 1;  // then the parts of one model would be trained differently
    if (options.strategy == Strategy::kDdp) continue;
    expect_all({train(options, 2, slower)}, "option: the learning rate", 5, 5);
  }
}

TEST(Drift, OptimizersThatDifferAreFound) {
  const Disturb heavier = [](int, int rank, Toy&, torch::optim::SGD& optimizer) {
    static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).weight_decay(rank == 1 ? 0.1 : 0);
  };
  for (const Options& options : sharing()) expect_all({train(options, 2, heavier)}, "consensus: ", 1, 20);
}

TEST(Drift, ParametersThatOneWorkerHasChangedAreFound) {
  // One element of a small parameter: no norm of a large part would show it, finish() does.
  const Disturb write = [](int step, int rank, Toy& toy, torch::optim::SGD&) {
    const at::NoGradGuard no_grad;
    if (step == 19 && rank == 1) toy.parameter[1][77] += 500;
  };
  expect_all(train({.strategy = Strategy::kDdp}, 3, write), "consensus: the workers' parameters have drifted", 19, 20);
}

TEST(Drift, FinishRemovesWhatRoundingHasDone) {
  run_workers(2, [](const Cluster& cluster) {
    Toy toy({1001}, 1);
    auto optimizer = plain_sgd(toy, 0.01);
    Synchronizer sync(cluster, toy, optimizer, {.strategy = Strategy::kDdp});
    if (cluster.rank() == 1) {
      const at::NoGradGuard no_grad;
      toy.parameter[0][3].fill_(std::nextafter(1.0F, 2.0F));
    }
    sync.finish();
    EXPECT_TRUE(toy.parameter[0].equal(torch::ones({1001})));
  });
}

TEST(Drift, ARunThatHasDivergedEverywhereIsNoDrift) {
  const Disturb explode = [](int step, int, Toy& toy, torch::optim::SGD&) {
    const at::NoGradGuard no_grad;
    if (step == 3) toy.parameter[0].fill_(std::numeric_limits<float>::quiet_NaN());
    if (step == 6) toy.parameter[1].fill_(std::numeric_limits<float>::infinity());
  };
  expect_all(train({.strategy = Strategy::kDdp}, 3, explode), "none", 20, 20);
  const Disturb one_explodes = [](int step, int rank, Toy& toy, torch::optim::SGD&) {
    const at::NoGradGuard no_grad;
    if (step == 3 && rank == 1) toy.parameter[0].fill_(std::numeric_limits<float>::quiet_NaN());
  };
  expect_all(train({.strategy = Strategy::kDdp}, 3, one_explodes, 0, {7}), "consensus: ", 3, 4);
}

TEST(Drift, AnotherKindOfOptimizerIsRefused) {
  for (const Strategy strategy : {Strategy::kDdp, Strategy::kCo2}) {
    run_workers(2, [&](const Cluster& cluster) {
      Toy toy({9});
      auto sgd = plain_sgd(toy, 0.1);
      torch::optim::AdamW adamw(toy.parameters(), 0.1);
      torch::optim::Optimizer& optimizer = cluster.rank() == 0 ? static_cast<torch::optim::Optimizer&>(sgd)
                                                               : static_cast<torch::optim::Optimizer&>(adamw);
      try {
        Synchronizer sync(cluster, toy, optimizer, {.strategy = strategy, .local_steps = 1});
        ADD_FAILURE() << "accepted";
      } catch (const ClusterError& error) {
        EXPECT_NE(std::string(error.what()).find("rank 1 has another kind of optimizer"), std::string::npos);
      }
    });
  }
}

}  // namespace
}  // namespace co2
