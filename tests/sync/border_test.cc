// What a user of the library can get wrong, or meets by bad luck.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <atomic>
#include <limits>
#include <string>

#include "support/refusal.h"
#include "support/toy.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::plain_sgd;
using test::refusal;
using test::run_workers;
using test::Toy;

TEST(Border, RefusesAnOptimizerThatHasGrown) {
  run_workers(1, [](const Cluster& cluster) {
    Toy toy({5});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, {.strategy = Strategy::kCo2, .local_steps = 2});
    toy.set_gradients(1);
    sync.step();
    const at::Tensor late = torch::zeros({3}, torch::requires_grad());
    optimizer.add_param_group(torch::optim::OptimizerParamGroup({late}));
    EXPECT_NE(refusal([&] { sync.step(); }).find("were added to the optimizer"), std::string::npos);
  });
}

TEST(Border, RefusesToClipToNothing) {
  run_workers(1, [](const Cluster& cluster) {
    Toy toy({5});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, {.strategy = Strategy::kNone});
    toy.set_gradients(1);
    for (const double norm : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
      EXPECT_NE(refusal([&] { sync.clip_gradients(norm); }).find("max_norm"), std::string::npos) << norm;
    }
    EXPECT_NEAR(sync.clip_gradients(1), std::sqrt(5.0), 1e-6);
  });
}

TEST(Border, RefusesParametersThatAreNoNumbersOnTheLine) {
  run_workers(1, [](const Cluster& cluster) {
    torch::nn::Module model;
    const at::Tensor parameter = model.register_parameter("p", torch::zeros({2}, torch::kComplexFloat));
    torch::optim::SGD optimizer({parameter}, 0.1);
    EXPECT_NE(refusal([&] { Synchronizer sync(cluster, model, optimizer); }).find("floating-point"), std::string::npos);
  });
}

TEST(Border, AFailedExchangeIsMetAgainInEveryStep) {
  std::atomic<int> carried{std::numeric_limits<int>::max()};
  const auto wire = [&] {
    if (carried-- <= 0) throw std::runtime_error("cable pulled");
  };
  run_workers(Cluster::in_process(2, wire), [&](const Cluster& cluster) {
    Toy toy({64});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, {.strategy = Strategy::kCo2, .local_steps = 2, .fragments = 1});
    cluster.communicator("test")->barrier()->wait();
    carried = 0;
    int failures = 0;
    for (int step = 0; step < 10; ++step) {
      toy.set_gradients(1);
      try {
        sync.step();
      } catch (const CommError&) {
        ++failures;
      }
    }
    EXPECT_EQ(failures, 7);  // launched after step 2, due after step 4, and then always
  });
}

TEST(Border, WorkersThatDifferInWhatRoundsMayDoAreFound) {
  EXPECT_THROW(run_workers(2,
                           [](const Cluster& cluster) {
                             Toy toy({64});
                             auto optimizer = plain_sgd(toy, 1);
                             Options options{.strategy = Strategy::kCo2};
                             if (cluster.rank() == 1) options.clip = 12;
                             Synchronizer sync(cluster, toy, optimizer, options);
                           }),
               ClusterError);
}

TEST(Border, WeightsAreExactForNarrowParameters) {
  // In bfloat16 a total weight of 261 would be 260 or 262.
  run_workers(3, [](const Cluster& cluster) {
    torch::nn::Module model;
    const at::Tensor parameter = model.register_parameter("p", torch::zeros({8}, torch::kBFloat16));
    torch::optim::SGD optimizer({parameter}, 1.0);
    Synchronizer sync(cluster, model, optimizer, {.strategy = Strategy::kLocalSgd, .local_steps = 1});
    // Weighted by 87 each, progress of 1: the sum, 261, is rounded to 260 on the wire, and 260 / 261 to 0.99609375.
    parameter.mutable_grad() = torch::ones({8}, torch::kBFloat16);
    sync.step(87);
    EXPECT_EQ(sync.consensus()[0].item<float>(), -0.99609375F);
  });
}

TEST(Border, FragmentsOfUnequalSizeShareTheirBuffers) {
  run_workers(2, [](const Cluster& cluster) {
    Toy toy({16 * 1201});  // fragments of 300, 300, 300 and 301 lines
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer,
                      {.strategy = Strategy::kCo2, .local_steps = 4, .fragments = 4, .wire = Wire::kPlain});
    for (int i = 0; i < 12; ++i) {
      toy.set_gradients(1);
      sync.step();
    }
    const double copies = static_cast<double>(sync.memory().communication) / (16 * 1201 * sizeof(float));
    EXPECT_NEAR(copies, 0.5, 0.01);
    sync.finish();
    EXPECT_EQ(sync.live()[0].item<float>(), -12);
  });
}

TEST(Border, AGroupNeedsItsOwnRankAndANameCanBeUsedAgain) {
  EXPECT_THROW(run_workers(1, [](const Cluster& cluster) { cluster.communicator("none", std::vector<int>{}); }),
               OptionError);
  run_workers(2, [](const Cluster& cluster) {
    // Rank 0 may ask for both before rank 1 asks for the first.
    const auto first = cluster.communicator("again");
    const auto second = cluster.communicator("again");
    for (const auto& group : {first, second}) {
      const at::Tensor one = torch::ones({1});
      group->all_reduce(one, ReduceOp::kSum)->wait();
      EXPECT_EQ(one.item<float>(), 2);
    }
  });
}

}  // namespace
}  // namespace co2
