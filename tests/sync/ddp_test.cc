#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/gate.h"
#include "support/toy.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(5, 33));
    unused = register_module("unused", torch::nn::Linear(4, 4));
    sometimes = register_module("sometimes", torch::nn::Linear(33, 1));
    second = register_module("second", torch::nn::Linear(33, 1));
    // Not from the random generator: workers that are threads would draw from it in turn.
    for (at::Tensor& p : parameters()) p.set_data((torch::arange(p.numel()) * 0.7).sin().view(p.sizes()) * 0.2);
  }
  torch::Tensor forward(const torch::Tensor& x, bool extra) {
    const torch::Tensor hidden = torch::tanh(first(x));
    return extra ? second(hidden) + sometimes(hidden) : second(hidden);
  }
  torch::nn::Linear first{nullptr}, unused{nullptr}, sometimes{nullptr}, second{nullptr};
};

torch::Tensor batch(int step, int rank) {
  torch::Tensor x = torch::empty({8, 5});
  for (int i = 0; i < x.numel(); ++i) x.view({-1})[i] = std::sin(0.37 * i + step + 10.0 * rank);
  return x;
}

std::vector<torch::Tensor> train_alone(int workers, int steps, int passes) {
  Net net;
  torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(1e-2));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    for (int pass = 0; pass < passes; ++pass) {
      for (int rank = 0; rank < workers; ++rank) {
        (net.forward(batch(step * passes + pass, rank), rank == 0).pow(2).mean() / workers).backward();
      }
    }
    optimizer.step();
  }
  return net.parameters();
}

TEST(Ddp, EqualsOneWorkerWithAllTheData) {
  for (const int workers : {2, 3}) {
    for (const int passes : {1, 3}) {
      const auto expected = train_alone(workers, 4, passes);
      run_workers(workers, [&](const Cluster& cluster) {
        Net net;
        const torch::Tensor untouched = net.unused->weight.clone();
        torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(1e-2));
        Synchronizer sync(cluster, net, optimizer,
                          {.strategy = Strategy::kDdp, .accumulation_steps = passes, .bucket_bytes = 1024});
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
          for (int pass = 0; pass < passes; ++pass) {
            net.forward(batch(step * passes + pass, cluster.rank()), cluster.rank() == 0).pow(2).mean().backward();
          }
          sync.step();
        }
        sync.finish();
        const auto actual = net.parameters();
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_TRUE(torch::allclose(actual[i], expected[i], 1e-4, 1e-6)) << "parameter " << i;
        }
        // Nobody used it: no gradient, so that weight decay leaves it alone, as on a single worker.
        EXPECT_FALSE(net.unused->weight.grad().defined());
        EXPECT_TRUE(net.unused->weight.equal(untouched));
        EXPECT_GT(sync.trace().total().bytes, 0);
      });
    }
  }
}

TEST(Ddp, StartsTheExchangeWhenBackwardHasOnlyBegun) {
  test::Gate gate;
  run_workers(Cluster::in_process(2, gate.wire()), [&](const Cluster& cluster) {
    torch::nn::Linear first(5, 64), second(64, 64), third(64, 1);
    torch::nn::Sequential net(first, second, third);
    // In groups by kind, as is usual for weight decay: the optimizer's order is not that of the layers.
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector{first->weight, second->weight, third->weight});
    groups.emplace_back(std::vector{first->bias, second->bias, third->bias});
    torch::optim::SGD optimizer(groups, torch::optim::SGDOptions(0.1));
    Synchronizer sync(cluster, *net, optimizer, {.strategy = Strategy::kDdp, .bucket_bytes = 1024});
    const auto barrier = cluster.communicator("test");
    barrier->barrier()->wait();
    gate.close();
    Clock::time_point last_layer_reached;
    const torch::Tensor hidden = first(batch(0, cluster.rank()));
    hidden.register_hook([&](const torch::Tensor&) { last_layer_reached = Clock::now(); });
    third(second(hidden)).pow(2).mean().backward();  // returns although nothing gets through
    gate.open();
    sync.step();
    bool early = false;
    for (const Span& span : sync.trace().spans()) {
      if (span.kind == SpanKind::kTransfer && span.begin < last_layer_reached) early = true;
    }
    EXPECT_TRUE(early);
  });
}

TEST(Ddp, HoldsEachGradientOnce) {
  Net net;
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  Synchronizer sync(Cluster::alone(), net, optimizer, {.strategy = Strategy::kDdp});
  net.forward(batch(0, 0), true).mean().backward();
  const torch::Tensor first = net.first->weight.grad();
  EXPECT_TRUE(first.is_alias_of(net.second->weight.grad()));  // in the bucket already, not in a copy beside it
  sync.step();
  EXPECT_TRUE(net.first->weight.grad().is_same(first));
}

TEST(Ddp, RefusesWeightsAndTooManyPasses) {
  Net net;
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  Synchronizer sync(Cluster::alone(), net, optimizer, {.strategy = Strategy::kDdp});
  net.forward(batch(0, 0), true).mean().backward();
  EXPECT_THROW(sync.step(2), OptionError);
  EXPECT_THROW(net.forward(batch(0, 0), true).mean().backward(), OptionError);
}

}  // namespace
}  // namespace co2
