// What a user has hung on to a model or to the Synchronizer stays, and adds up.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <memory>
#include <utility>
#include <vector>

#include "support/unit_model.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;

class Count final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Count(int& calls) : calls_(calls) {}
  void operator()(const torch::autograd::Variable&) override { ++calls_; }

 private:
  int& calls_;
};

void set_hook(const at::Tensor& tensor, int& calls) {
  torch::autograd::impl::set_post_acc_grad_hooks(tensor, std::make_unique<Count>(calls));
}

TEST(Hooks, OfTheUserOnGradientsStayInPlace) {
  for (const Options& options : {Options{.strategy = Strategy::kDdp}, Options{.strategy = Strategy::kDdp, .zero = 1},
                                 Options{.strategy = Strategy::kDdp, .zero = 2}}) {
    run_workers(2, [&](const Cluster& cluster) {
      torch::nn::Linear model(3, 2);
      const at::Tensor weight = model->weight, bias = model->bias;
      int early = 0, late = 0, tensor_hooks = 0;
      set_hook(weight, early);
      bias.register_hook([&](const at::Tensor&) { ++tensor_hooks; });
      {
        torch::optim::SGD optimizer(model->parameters(), 0.1);
        Synchronizer sync(cluster, *model, optimizer, options);
        const at::Tensor first = weight.detach().clone();
        for (int step = 0; step < 4; ++step) {
          if (step == 2) set_hook(weight, late);  // in place of ours
          optimizer.zero_grad();
          (model(torch::ones({1, 3})) * (1 + cluster.rank())).sum().backward();
          sync.step();
        }
        sync.finish();
        // Four steps by the mean of both workers' gradients, 1.5: none was lost, nor counted for one worker only.
        EXPECT_TRUE(at::allclose(weight.detach(), first - 4 * 0.1 * 1.5)) << weight;
      }
      EXPECT_EQ(early, 2);
      EXPECT_EQ(late, 2);
      EXPECT_EQ(tensor_hooks, 4);
      // And alone again afterwards.
      if (options.zero == 0) {
        (model(torch::ones({1, 3}))).sum().backward();
        EXPECT_EQ(late, 3);
      }
    });
  }
}

TEST(Hooks, BeforeTheInnerStepAddUp) {
  run_workers(1, [](const Cluster& cluster) {
    torch::nn::Linear model(3, 2);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    Synchronizer sync(cluster, *model, optimizer, {.local_steps = 2});
    std::vector<int> order;
    sync.before_inner_step([&] { order.push_back(1); });
    sync.before_inner_step([&] { order.push_back(2); });
    model(torch::ones({1, 3})).sum().backward();
    sync.step();
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
    sync.skip_step();
    EXPECT_EQ(order.size(), 2U);
  });
}

Synchronizer make(const Cluster& cluster, torch::nn::Linear& model, torch::optim::SGD& optimizer) {
  Synchronizer sync(cluster, *model, optimizer, {.strategy = Strategy::kDdp});
  return sync;
}

TEST(Hooks, ASynchronizerCanBeMoved) {
  run_workers(2, [](const Cluster& cluster) {
    torch::nn::Linear model(3, 2);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    std::vector<Synchronizer> all;
    all.push_back(make(cluster, model, optimizer));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      (model(torch::ones({1, 3})) * (1 + cluster.rank())).sum().backward();
      EXPECT_TRUE(all.front().step());
    }
    all.front().finish();
    EXPECT_EQ(all.front().steps(), 3);
  });
}

}  // namespace
}  // namespace co2
