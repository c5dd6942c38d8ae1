#include "train/optimizer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "train/config.h"
#include "train/fused_adamw.h"
#include "train/gpt/gpt.h"

namespace co2::train {
namespace {

TEST(FusedAdamW, FollowsLibTorchsOwnUpToRounding) {
  for (const bool amsgrad : {false, true}) {
    torch::manual_seed(1);
    std::vector<at::Tensor> ours, theirs;
    for (const std::int64_t size : {0, 1, 3, 1023, 1025}) {
      const auto start = at::randn({size});
      ours.push_back(start.clone().requires_grad_());
      theirs.push_back(start.clone().requires_grad_());
    }
    const auto options = torch::optim::AdamWOptions(1e-2).betas({0.8, 0.9}).weight_decay(0.3).amsgrad(amsgrad);
    FusedAdamW fused({torch::optim::OptimizerParamGroup(ours)}, options);
    fused.allocate_state();
    EXPECT_EQ(fused.state().size(), ours.size());  // before the first step
    torch::optim::AdamW plain(theirs, options);
    for (int step = 0; step < 20; ++step) {
      for (std::size_t i = 0; i < ours.size(); ++i) {
        const bool skipped = i == 2 && step % 3 == 0;  // a parameter without a gradient counts its own steps
        const auto gradient = at::randn_like(theirs[i].detach());
        ours[i].mutable_grad() = skipped ? at::Tensor() : gradient.clone();
        theirs[i].mutable_grad() = skipped ? at::Tensor() : gradient.clone();
      }
      fused.step();
      plain.step();
    }
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-5, 1e-6)) << i;
  }
}

TEST(Optimizer, OnlyMatricesDecayAndEveryParameterIsInOneGroup) {
  Gpt model({2, 2, 16, 12}, 1);
  for (const auto& name : optimizer_names()) {
    TrainConfig config;
    config.optimizer = name;
    const auto optimizer = make_optimizer(config, model);
    ASSERT_EQ(optimizer->param_groups().size(), 2u) << name;
    std::size_t count = 0;
    for (auto& group : optimizer->param_groups()) {
      count += group.params().size();
      const bool matrices = group.params()[0].dim() >= 2;
      for (const auto& parameter : group.params()) EXPECT_EQ(parameter.dim() >= 2, matrices);
      double decay = -1;
      if (name == "adamw") decay = static_cast<torch::optim::AdamWOptions&>(group.options()).weight_decay();
      if (name == "adam") decay = static_cast<torch::optim::AdamOptions&>(group.options()).weight_decay();
      if (name == "sgd") decay = static_cast<torch::optim::SGDOptions&>(group.options()).weight_decay();
      EXPECT_EQ(decay, matrices ? config.weight_decay : 0) << name;
    }
    EXPECT_EQ(count, model.parameters().size());
    set_rate(*optimizer, 0.25);
    for (auto& group : optimizer->param_groups()) EXPECT_EQ(group.options().get_lr(), 0.25);
  }
}

}  // namespace
}  // namespace co2::train
