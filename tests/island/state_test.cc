// An optimizer that has begun to train before the Synchronizer is made, and one that can't be divided.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/unit_model.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;
using test::unit_batch;
using test::UnitModel;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(UnitModel&)>;

/// Weights and biases in groups of their own.
template <typename Optimizer, typename OptimizerOptions>
MakeOptimizer with(const OptimizerOptions& options) {
  return [options](UnitModel& model) {
    std::vector<at::Tensor> weights, rest;
    for (const at::Tensor& p : model.parameters()) (p.dim() > 1 ? weights : rest).push_back(p);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(weights);
    groups.emplace_back(rest);
    return std::make_unique<Optimizer>(groups, options);
  };
}

std::vector<std::pair<std::string, MakeOptimizer>> optimizers() {
  using namespace torch::optim;
  return {{"sgd", with<SGD>(SGDOptions(0.05).momentum(0.9).dampening(0.1))},
          {"adam", with<Adam>(AdamOptions(0.01))},
          {"amsgrad", with<AdamW>(AdamWOptions(0.01).amsgrad(true))},
          {"rmsprop", with<RMSprop>(RMSpropOptions(0.003).centered(true).momentum(0.5))},
          {"adagrad", with<Adagrad>(AdagradOptions(0.05).initial_accumulator_value(0.1))}};
}

/// Trains alone, the first steps without unit 1, so that its state is younger or missing, and then with another worker.
at::Tensor trained(const MakeOptimizer& make, int stage, bool all_have_state) {
  at::Tensor result;
  run_workers(2, [&](const Cluster& cluster) {
    UnitModel model(3);
    const auto optimizer = make(model);
    const int alone = all_have_state ? 4 : 2;
    for (int step = 0; step < alone; ++step) {
      optimizer->zero_grad();
      model.loss(unit_batch(step, 0, 0), [&](int unit) { return unit == 1 && step < 2 ? 0 : 2; }).backward();
      optimizer->step();
    }
    Synchronizer sync(cluster, model, *optimizer, {.strategy = Strategy::kDdp, .bucket_bytes = 1024, .zero = stage});
    for (int step = alone; step < 10; ++step) {
      optimizer->zero_grad();
      model.loss(unit_batch(step, 0, cluster.rank())).backward();
      sync.step();
    }
    sync.finish();
    if (cluster.rank() == 0) result = model.flat_copy();
  });
  return result;
}

TEST(OptimizerState, IsDividedWithTheParameters) {
  for (const auto& [name, make] : optimizers()) {
    for (const bool all_have_state : {true, false}) {
      const at::Tensor reference = trained(make, 0, all_have_state);
      for (const int stage : {1, 2, 3}) {
        EXPECT_TRUE(trained(make, stage, all_have_state).equal(reference))
            << name << ", stage " << stage << (all_have_state ? "" : ", some without state");
      }
    }
  }
}

TEST(OptimizerState, IsTheShardsOnlyAfterwards) {
  run_workers(2, [](const Cluster& cluster) {
    UnitModel model(3);
    torch::optim::Adam optimizer(model.parameters(), 0.01);
    model.loss(unit_batch(0, 0, 0)).backward();
    optimizer.step();
    std::int64_t bytes = 0;
    for (const at::Tensor& p : model.parameters()) bytes += 2 * static_cast<std::int64_t>(p.nbytes());
    const Synchronizer sync(cluster, model, optimizer, {.strategy = Strategy::kDdp, .zero = 1});
    EXPECT_LT(sync.memory().inner_state, bytes / 2 + 4096);  // and padding
    EXPECT_GT(sync.memory().inner_state, 0);
  });
}

struct OwnOptimizer : torch::optim::Optimizer {
  explicit OwnOptimizer(const std::vector<at::Tensor>& parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(parameters)}, std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure) override { return {}; }
};

struct OwnState : torch::optim::OptimizerCloneableParamState<OwnState> {};

// What can't be divided is refused before anything has been taken apart.
TEST(OptimizerState, ARefusalLeavesModelAndOptimizerAsTheyWere) {
  for (const bool known : {false, true}) {
    for (const auto& [stage, compute] :
         {std::pair{3, Compute::kPlain}, {1, Compute::kPlain}, {3, Compute::kBfloat16}}) {
      run_workers(2, [&, stage = stage, compute = compute](const Cluster& cluster) {
        UnitModel model(3);
        const at::Tensor before = model.flat_copy();
        std::unique_ptr<torch::optim::Optimizer> optimizer;
        if (known) {
          optimizer = std::make_unique<torch::optim::SGD>(model.parameters(), 0.1);
          optimizer->state()[model.last->weight.unsafeGetTensorImpl()] = std::make_unique<OwnState>();
        } else {
          optimizer = std::make_unique<OwnOptimizer>(model.parameters());
        }
        const Options options{.strategy = Strategy::kDdp, .zero = stage, .compute = compute};
        EXPECT_THROW(Synchronizer(cluster, model, *optimizer, options), OptionError);
        ASSERT_TRUE(model.flat_copy().equal(before));
        EXPECT_EQ(model.last->weight.scalar_type(), at::kFloat);
        EXPECT_EQ(optimizer->param_groups()[0].params().size(), model.parameters().size());
        // It can be trained, also with another Synchronizer.
        torch::optim::SGD other(model.parameters(), 0.1);
        Synchronizer sync(cluster, model, other, options);
        model.loss(unit_batch(0, 0, cluster.rank())).backward();
        sync.step();
        sync.finish();
        EXPECT_FALSE(model.flat_copy().equal(before));
      });
    }
  }
}

}  // namespace
}  // namespace co2
