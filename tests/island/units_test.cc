// Models whose units are used in unusual ways.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <vector>

#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;

/// Two layers, the second of which can be left out.
struct Block : UnitModule {
  Block() {
    first = register_module("first", torch::nn::Linear(7, 7));
    second = register_module("second", torch::nn::Linear(7, 7));
  }
  at::Tensor forward(const at::Tensor& x, bool whole = true) {
    return as_unit([&] {
      const at::Tensor y = torch::tanh(first(x));
      return whole ? y + second(y) : y;
    });
  }
  torch::nn::Linear first{nullptr};
  torch::nn::Linear second{nullptr};
};

struct Model : torch::nn::Module {
  explicit Model(int blocks_wanted) {
    for (int i = 0; i < blocks_wanted; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>()));
    }
    last = register_module("last", torch::nn::Linear(7, 1));
    auto random = at::detail::createCPUGenerator(3);
    const at::NoGradGuard no_grad;
    for (const at::Tensor& p : parameters()) p.normal_(0, 0.3, random);
  }
  at::Tensor loss(const at::Tensor& x, bool whole = true) {
    at::Tensor y = x.to(last->weight.scalar_type());
    for (const auto& block : blocks) y = block->forward(y, whole);
    return last(y).to(at::kFloat).square().mean();
  }
  std::vector<std::shared_ptr<Block>> blocks;
  torch::nn::Linear last{nullptr};
};

at::Tensor flat_copy(const torch::nn::Module& model) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& p : model.parameters()) all.push_back(p.detach().reshape({-1}).to(at::kFloat).clone());
  return at::cat(all);
}

/// Trains with two workers; `train` says which of the model's parameters, `step` does one step's backward passes.
at::Tensor trained(const Options& options, const std::function<std::vector<at::Tensor>(Model&)>& train,
                   const std::function<void(Model&, torch::Generator&)>& step) {
  at::Tensor result;
  run_workers(2, [&](const Cluster& cluster) {
    Model model(3);
    torch::optim::SGD optimizer(train(model), 0.05);
    Synchronizer sync(cluster, model, optimizer, options);
    auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(10 + cluster.rank()));
    for (int i = 0; i < 6; ++i) {
      optimizer.zero_grad();
      step(model, random);
      sync.step();
    }
    sync.finish();
    if (cluster.rank() == 0) result = flat_copy(model);
  });
  return result;
}

Options with_stage(int stage, int accumulation = 1) {
  return {.strategy = Strategy::kDdp, .accumulation_steps = accumulation, .bucket_bytes = 1024, .zero = stage};
}

TEST(Units, OfWhichTheOptimizerTrainsNothingAreLeftAlone) {
  const auto last_only = [](Model& model) {
    std::vector<at::Tensor> parameters = model.blocks.back()->parameters();
    for (const at::Tensor& p : model.last->parameters()) parameters.push_back(p);
    return parameters;
  };
  const auto step = [](Model& model, torch::Generator& random) { model.loss(at::randn({4, 7}, random)).backward(); };
  const at::Tensor reference = trained(with_stage(0), last_only, step);
  for (const int stage : {1, 2, 3}) {
    EXPECT_TRUE(at::allclose(trained(with_stage(stage), last_only, step), reference, 1e-5, 1e-6)) << stage;
  }
}

// In the first pass half of each unit has no part: in the second, its gradients must not be taken for the last ones.
TEST(Units, HalfUsedInOnePassAreHereUntilBackwardIsOver) {
  const auto all = [](Model& model) { return model.parameters(); };
  const auto step = [](Model& model, torch::Generator& random) {
    model.loss(at::randn({4, 7}, random), /*whole=*/false).backward();
    model.loss(at::randn({4, 7}, random)).backward();
  };
  const at::Tensor reference = trained(with_stage(0, 2), all, step);
  for (const int stage : {1, 2, 3}) {
    EXPECT_TRUE(at::allclose(trained(with_stage(stage, 2), all, step), reference, 1e-4, 1e-5)) << stage;
  }
}

TEST(Units, MustNotContainUnits) {
  struct Nested : UnitModule {
    Nested() { inner = register_module("inner", std::make_shared<Block>()); }
    std::shared_ptr<Block> inner;
  };
  struct Outer : torch::nn::Module {
    Outer() { nested = register_module("nested", std::make_shared<Nested>()); }
    std::shared_ptr<Nested> nested;
  };
  EXPECT_THROW(run_workers(2,
                           [](const Cluster& cluster) {
                             Outer model;
                             torch::optim::SGD optimizer(model.parameters(), 0.1);
                             Synchronizer sync(cluster, model, optimizer, with_stage(3));
                           }),
               OptionError);
}

TEST(Units, StayWholeWhenTheConsensusIsLookedAtAfterTheEnd) {
  run_workers(4, [](const Cluster& cluster) {
    Model model(3);
    torch::optim::SGD optimizer(model.parameters(), 0.05);
    Synchronizer sync(
        cluster, model, optimizer,
        {.strategy = Strategy::kCo2, .local_steps = 2, .bucket_bytes = 1024, .island_size = 2, .zero = 3});
    for (int i = 0; i < 5; ++i) {
      optimizer.zero_grad();
      model.loss(at::full({4, 7}, 0.1 * cluster.rank())).backward();
      sync.step();
    }
    sync.finish();
    const at::Tensor before = flat_copy(model);
    sync.with_consensus([&] {
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(std::isfinite(model.loss(at::ones({4, 7})).item<double>()));
    });
    EXPECT_TRUE(flat_copy(model).equal(before));
  });
}

TEST(Units, ThrowWhatTheBodyThrows) {
  run_workers(2, [](const Cluster& cluster) {
    Model model(2);
    torch::optim::SGD optimizer(model.parameters(), 0.05);
    Options options = with_stage(3);
    options.strategy = Strategy::kCo2;
    options.local_steps = 2;
    options.island_size = 2;
    Synchronizer sync(cluster, model, optimizer, options);
    EXPECT_THROW(sync.with_consensus([] { throw std::runtime_error("body"); }), std::runtime_error);
    model.loss(at::ones({4, 7})).backward();  // everything is back in place
    sync.step();
    sync.finish();
  });
}

// Sixty-four gradients of about the same size: in bfloat16 the later ones would be lost.
TEST(Units, PassesAddUpInTheDigitsOfTheWeights) {
  for (const int stage : {0, 1, 2}) {
    run_workers(stage == 0 ? 1 : 2, [&](const Cluster& cluster) {
      torch::nn::Linear model(torch::nn::LinearOptions(1, 1).bias(false));
      model->weight.data().fill_(1);
      torch::optim::SGD optimizer(model->parameters(), 1.0);
      Options options = with_stage(stage, 640);
      options.compute = Compute::kBfloat16;
      Synchronizer sync(cluster, *model, optimizer, options);
      for (int pass = 0; pass < 640; ++pass) (model->weight.sum() * 0.001).backward();
      sync.step();
      sync.finish();
      // 0.001 itself is rounded to bfloat16, by less than 0.4 %.
      EXPECT_NEAR(model->weight.item<float>(), 1 - 0.64, 0.64 * 0.005) << stage;
    });
  }
}

}  // namespace
}  // namespace co2
