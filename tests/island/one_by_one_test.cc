// A model that is never whole on any worker: made parameter by parameter, shown parameter by parameter.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/refusal.h"
#include "support/unit_model.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::refusal;
using test::run_workers;

/// Units around what belongs to none, odd sizes, one element, none, and another memory order.
struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", std::make_shared<test::TanhUnit>(13, 37));
    turned = register_parameter("turned", torch::empty({37, 11}).t());
    second = register_module("second", std::make_shared<test::TanhUnit>(11, 23));
    scale = register_parameter("scale", torch::empty({1}));
    nothing = register_parameter("nothing", torch::empty({0}));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor input = x.to(scale.scalar_type());
    return (second->forward(first->forward(input).matmul(turned.t())) * scale).to(at::kFloat);
  }
  std::shared_ptr<test::TanhUnit> first, second;
  at::Tensor turned, scale, nothing;
};

FirstValues values_from(std::uint64_t seed) {
  return [random = at::detail::createCPUGenerator(seed)](const std::string&, const at::Tensor& into) mutable {
    into.normal_(0, 0.3, random);
  };
}

using Named = std::vector<std::pair<std::string, at::Tensor>>;

Named values_of(Synchronizer& sync) {
  Named shown;
  sync.each_parameter([&](const std::string& name, const at::Tensor& values) {
    EXPECT_FALSE(values.requires_grad());
    shown.emplace_back(name, values.clone());
  });
  return shown;
}

Named values_of(const Net& net) {
  Named values;
  for (const auto& item : net.named_parameters()) values.emplace_back(item.key(), item.value().detach().clone());
  return values;
}

void expect_same(const Named& a, const Named& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first) << what;
    EXPECT_EQ(a[i].second.scalar_type(), b[i].second.scalar_type()) << what;
    EXPECT_TRUE(a[i].second.equal(b[i].second)) << what << ": " << a[i].first;
  }
}

struct Layout {
  int workers;
  Options options;
};

std::vector<Layout> layouts() {
  std::vector<Layout> result;
  result.push_back({1, {.strategy = Strategy::kNone}});
  result.push_back({3, {.local_steps = 2, .fragments = 1}});
  for (const int zero : {0, 1, 2, 3}) {
    result.push_back({3, {.strategy = Strategy::kDdp, .bucket_bytes = 1024, .zero = zero}});
    result.push_back({4, {.local_steps = 2, .fragments = 1, .bucket_bytes = 1024, .island_size = 2, .zero = zero}});
    if (zero == 0) continue;
    result.push_back(
        {2, {.strategy = Strategy::kDdp, .bucket_bytes = 1024, .zero = zero, .compute = Compute::kBfloat16}});
  }
  return result;
}

std::string describe(const Layout& layout) {
  return std::to_string(layout.workers) + " workers, zero " + std::to_string(layout.options.zero) +
         (layout.options.compute == Compute::kBfloat16 ? ", bfloat16" : "");
}

/// Trains for a while; `body` has the rest.
void train(const Cluster& cluster, const Layout& layout, bool without_memory,
           const std::function<void(Net&, Synchronizer&, const std::function<void(int)>&)>& body) {
  Net net;
  if (without_memory) {
    release_memory(net);
  } else {
    const at::NoGradGuard no_grad;
    // Only rank 0's count.
    const FirstValues values = values_from(cluster.rank() == 0 ? 5 : 6);
    for (const auto& item : net.named_parameters()) values(item.key(), item.value());
  }
  torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(0.01));
  Synchronizer sync(cluster, net, optimizer, layout.options, values_from(cluster.rank() == 0 ? 5 : 6));
  auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + cluster.rank()));
  const auto steps = [&](int count) {
    for (int step = 0; step < count; ++step) {
      optimizer.zero_grad();
      const at::Tensor x = at::randn({4, 13}, random);
      torch::mse_loss(net.forward(x), at::cat({x, x.slice(1, 0, 10)}, 1).sin()).backward();
      sync.step();
    }
  };
  body(net, sync, steps);
}

TEST(OneByOne, AModelWithoutMemoryTrainsAsOneThatHasSome) {
  for (const Layout& layout : layouts()) {
    std::vector<Named> ends(2);
    for (const bool without_memory : {false, true}) {
      run_workers(layout.workers, [&](const Cluster& cluster) {
        train(cluster, layout, without_memory, [&](Net& net, Synchronizer& sync, const auto& steps) {
          steps(5);
          sync.finish();
          if (cluster.rank() == 0) ends[without_memory ? 1 : 0] = values_of(net);
        });
      });
    }
    expect_same(ends[0], ends[1], describe(layout));
  }
}

TEST(OneByOne, WhatIsShownIsTheModelInItsOwnDtypeAndOrder) {
  for (const Layout& layout : layouts()) {
    std::vector<Named> shown(static_cast<std::size_t>(layout.workers));
    Named whole;
    run_workers(layout.workers, [&](const Cluster& cluster) {
      train(cluster, layout, true, [&](Net& net, Synchronizer& sync, const auto& steps) {
        steps(5);
        values_of(sync);  // changes nothing
        sync.finish_sharded();
        shown[static_cast<std::size_t>(cluster.rank())] = values_of(sync);
        sync.finish();
        if (cluster.rank() == 0) whole = values_of(net);
      });
    });
    for (const Named& one : shown) expect_same(one, whole, describe(layout));
  }
}

TEST(OneByOne, AfterFinishShardedForwardSeesWhatFinishWouldLeaveAndTrainingGoesOn) {
  for (const Layout& layout : layouts()) {
    std::vector<at::Tensor> outputs(2);
    std::vector<Named> ends(2);
    for (const bool sharded : {false, true}) {
      run_workers(layout.workers, [&](const Cluster& cluster) {
        train(cluster, layout, true, [&](Net& net, Synchronizer& sync, const auto& steps) {
          steps(5);
          sharded ? sync.finish_sharded() : sync.finish();
          const at::Tensor x = at::arange(26, at::kFloat).view({2, 13}) / 26;
          at::Tensor output;
          {
            const at::NoGradGuard no_grad;
            output = net.forward(x);
            if (sharded && layout.options.zero == 3) {
              EXPECT_EQ(net.first->linear->weight.storage().nbytes(), 0) << "it comes and goes";
            }
            sync.with_consensus([&] { net.forward(x); });
            EXPECT_TRUE(net.forward(x).equal(output)) << describe(layout);
          }
          steps(3);
          sync.finish();
          if (cluster.rank() != 0) return;
          outputs[sharded ? 1 : 0] = output;
          ends[sharded ? 1 : 0] = values_of(net);
        });
      });
    }
    EXPECT_TRUE(outputs[0].equal(outputs[1])) << describe(layout);
    expect_same(ends[0], ends[1], describe(layout));
  }
}

TEST(OneByOne, AProblemWithFirstValuesIsToldToAll) {
  for (const int zero : {0, 3}) {
    std::atomic<int> told = 0;
    EXPECT_THROW(run_workers(2,
                             [&](const Cluster& cluster) {
                               Net net;
                               release_memory(net);
                               torch::optim::AdamW optimizer(net.parameters());
                               const auto values = [](const std::string& name, const at::Tensor& into) {
                                 if (name == "turned") throw std::runtime_error("the disk is gone");
                                 into.zero_();
                               };
                               try {
                                 Synchronizer(cluster, net, optimizer, {.strategy = Strategy::kDdp, .zero = zero},
                                              values);
                               } catch (const ClusterError& error) {
                                 EXPECT_EQ(cluster.rank(), 1);
                                 EXPECT_NE(std::string(error.what()).find("rank 0"), std::string::npos);
                                 ++told;
                               }
                             }),
                 std::runtime_error);
    EXPECT_EQ(told, 1);
  }
}

TEST(OneByOne, NoMemoryAndNoValuesAreRefused) {
  Net net;
  release_memory(net);
  torch::optim::AdamW optimizer(net.parameters());
  const Cluster alone = Cluster::alone();
  EXPECT_NE(refusal([&] { Synchronizer(alone, net, optimizer); }).find("first values"), std::string::npos);
  net.turned.requires_grad_(false);
  EXPECT_NE(refusal([&] { Synchronizer(alone, net, optimizer, {}, values_from(1)); }).find("frozen"),
            std::string::npos);
}

TEST(OneByOne, MemoryThatOthersNeedIsNotReleased) {
  Net net;
  net.turned.requires_grad_(false);
  release_memory(net);
  EXPECT_GT(net.turned.storage().nbytes(), 0) << "frozen ones keep theirs";
  EXPECT_EQ(net.first->linear->weight.storage().nbytes(), 0);
  const at::Tensor large = at::zeros({8});
  EXPECT_NE(refusal([&] { release_memory(large.narrow(0, 2, 3)); }).find("larger"), std::string::npos);
}

}  // namespace
}  // namespace co2
