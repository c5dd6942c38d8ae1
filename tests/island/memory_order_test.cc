// Weights in channels_last stay in channels_last, whoever averages, shards or gathers them.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;

struct ConvUnit : UnitModule {
  ConvUnit() : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 3, 3).padding(1)))) {}
  at::Tensor forward(const at::Tensor& x) {
    return as_unit([&] { return x + torch::tanh(conv(x)); });
  }
  torch::nn::Conv2d conv;
};

struct ConvNet : torch::nn::Module {
  explicit ConvNet(bool channels_last) {
    first = register_module("first", std::make_shared<ConvUnit>());
    second = register_module("second", std::make_shared<ConvUnit>());
    last = register_module("last", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 2, 3)));
    auto random = at::detail::createCPUGenerator(3);
    const at::NoGradGuard no_grad;
    for (at::Tensor& p : parameters()) {
      p.normal_(0, 0.3, random);
      if (channels_last && p.dim() == 4) p.set_data(p.to(at::MemoryFormat::ChannelsLast));
    }
  }
  at::Tensor loss(const at::Tensor& x) { return last(second->forward(first->forward(x))).square().mean(); }
  bool is_channels_last() const {
    return first->conv->weight.is_contiguous(at::MemoryFormat::ChannelsLast) &&
           last->weight.is_contiguous(at::MemoryFormat::ChannelsLast);
  }
  std::shared_ptr<ConvUnit> first, second;
  torch::nn::Conv2d last{nullptr};
};

at::Tensor trained(const Options& options, bool channels_last) {
  at::Tensor result;
  run_workers(4, [&](const Cluster& cluster) {
    ConvNet net(channels_last);
    torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(0.01));
    // State from before, in the order of the weights.
    net.loss(at::ones({1, 3, 6, 6})).backward();
    optimizer.step();
    Synchronizer sync(cluster, net, optimizer, options);
    for (int step = 0; step < 8; ++step) {
      auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(10 * step + cluster.rank()));
      optimizer.zero_grad();
      net.loss(at::randn({2, 3, 6, 6}, random)).backward();
      sync.step();
      EXPECT_EQ(net.is_channels_last(), channels_last);
    }
    sync.finish();
    EXPECT_EQ(net.is_channels_last(), channels_last);
    std::vector<at::Tensor> all;
    for (const at::Tensor& p : net.parameters()) all.push_back(p.detach().reshape({-1}));
    if (cluster.rank() == 0) result = at::cat(all);
  });
  return result;
}

TEST(MemoryOrder, IsKeptInEveryStage) {
  for (const Strategy strategy : {Strategy::kDdp, Strategy::kLocalSgd}) {
    for (const int stage : {0, 1, 2, 3}) {
      Options options{.strategy = strategy, .local_steps = 3, .bucket_bytes = 1024, .zero = stage};
      if (strategy == Strategy::kDdp) options.local_steps = kAuto;
      options.island_size = strategy == Strategy::kDdp ? 4 : 2;
      EXPECT_TRUE(at::allclose(trained(options, true), trained(options, false), 1e-4, 1e-5))
          << name(strategy) << ", stage " << stage;
    }
  }
}

TEST(MemoryOrder, MustBeTheSameOnAllWorkers) {
  run_workers(2, [](const Cluster& cluster) {
    ConvNet net(cluster.rank() == 1);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    try {
      const Synchronizer sync(cluster, net, optimizer, {});
      ADD_FAILURE();
    } catch (const ClusterError& error) {
      EXPECT_NE(std::string(error.what()).find("memory order"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace co2
