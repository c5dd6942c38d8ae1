// Where parameters are, and who trains them: what used to go wrong without a word.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <string>

#include "options/recipe.h"
#include "support/refusal.h"
#include "support/unit_model.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::refusal;
using test::run_workers;
using test::unit_batch;
using test::UnitModel;

TEST(Placement, ASecondSynchronizerOfAShardIsRefused) {
  for (const int stage : {1, 2, 3}) {
    run_workers(2, [&](const Cluster& cluster) {
      UnitModel model(3);
      torch::optim::SGD optimizer(model.parameters(), 0.1);
      const Options options{.strategy = Strategy::kDdp, .zero = stage};
      {
        Synchronizer first(cluster, model, optimizer, options);
        first.finish();
      }
      const std::string text = refusal([&] { Synchronizer(cluster, model, optimizer, options); });
      EXPECT_NE(text.find("new optimizer for each Synchronizer"), std::string::npos) << text;
    });
  }
}

TEST(Placement, ParametersThatWereMovedAreNoticed) {
  enum class Way { kAnotherSynchronizer, kOtherDtype, kLoaded };
  for (const int stage : {0, 1, 3}) {
    for (const Way way : {Way::kAnotherSynchronizer, Way::kOtherDtype, Way::kLoaded}) {
      run_workers(2, [&](const Cluster& cluster) {
        UnitModel model(3);
        torch::optim::SGD optimizer(model.parameters(), 0.1);
        const Options options{.strategy = Strategy::kDdp, .zero = stage};
        Synchronizer sync(cluster, model, optimizer, options);
        model.loss(unit_batch(0, 0, 0)).backward();
        sync.step();
        sync.finish();
        torch::optim::SGD another(model.parameters(), 0.1);
        std::optional<Synchronizer> second;
        switch (way) {
          case Way::kAnotherSynchronizer: second.emplace(cluster, model, another, options); break;
          case Way::kOtherDtype: model.to(torch::kDouble); break;
          case Way::kLoaded: model.last->weight.set_data(torch::zeros({1, 7})); break;
        }
        for (const std::string& text : {refusal([&] { sync.step(); }), refusal([&] { sync.finish(); })}) {
          EXPECT_NE(text.find("not where co2 has put them"), std::string::npos) << text;
        }
      });
    }
  }
}

TEST(Placement, ZeroNeedsIslands) {
  run_workers(2, [](const Cluster& cluster) {
    UnitModel model(2);
    torch::optim::SGD optimizer(model.parameters(), 0.1);
    const std::string text = refusal([&] { Synchronizer(cluster, model, optimizer, {.zero = 2}); });
    EXPECT_NE(text.find("zero = 2 is not allowed with islands of one worker"), std::string::npos) << text;
    EXPECT_NE(text.find("island_size"), std::string::npos) << text;
  });
  // A worker on its own runs the same program.
  UnitModel model(2);
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  const Synchronizer sync(Cluster::alone(), model, optimizer, {.zero = 3});
  EXPECT_EQ(sync.options().zero, 0);
}

// Two modules inside of one unit may share a weight.
TEST(Placement, WeightsTiedInsideAUnitTrain) {
  struct Tied : UnitModule {
    Tied() {
      first = register_module("first", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)));
      weight = register_parameter("weight", first->weight);
    }
    at::Tensor forward(const at::Tensor& x) {
      return as_unit([&] { return torch::tanh(first(x)).matmul(weight); });
    }
    torch::nn::Linear first{nullptr};
    at::Tensor weight;
  };
  struct Net : torch::nn::Module {
    Net() : unit(register_module("unit", std::make_shared<Tied>())) {}
    std::shared_ptr<Tied> unit;
  };
  run_workers(2, [](const Cluster& cluster) {
    Net net;
    torch::optim::SGD optimizer({net.unit->weight}, 0.1);
    Synchronizer sync(cluster, net, optimizer, {.strategy = Strategy::kDdp, .zero = 3});
    const auto loss = [&] { return net.unit->forward(at::ones({2, 4})).square().mean(); };
    const double before = loss().item<double>();
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      loss().backward();
      sync.step();
    }
    EXPECT_LT(loss().item<double>(), before);
  });
}

}  // namespace
}  // namespace co2
