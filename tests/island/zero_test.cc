// ZeRO inside an island and CO2 between islands, on workers that are threads: every stage must train as stage 0 does.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/unit_model.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;

/// Odd sizes, a parameter of one element, one of none, and a frozen one.
struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", std::make_shared<test::TanhUnit>(13, 37));
    second = register_module("second", std::make_shared<test::TanhUnit>(37, 37));
    last = register_module("last", torch::nn::Linear(37, 5));
    scale = register_parameter("scale", torch::ones({1}));
    nothing = register_parameter("nothing", torch::zeros({0}));
    frozen = register_parameter("frozen", torch::full({3}, 0.5), /*requires_grad=*/false);
    // From a generator of its own: workers are threads, which share the global one.
    auto random = at::detail::createCPUGenerator(3);
    const at::NoGradGuard no_grad;
    for (const at::Tensor& p : parameters()) {
      if (p.requires_grad()) p.normal_(0, 0.2, random);
    }
  }
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor input = x.to(scale.scalar_type());
    return torch::mse_loss((last(second->forward(first->forward(input))) * scale).to(at::kFloat) + frozen.sum(), y);
  }
  std::shared_ptr<test::TanhUnit> first;
  std::shared_ptr<test::TanhUnit> second;
  torch::nn::Linear last{nullptr};
  at::Tensor scale;
  at::Tensor nothing;
  at::Tensor frozen;
};

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(Net&)>;

/// Two parameter groups: weights that decay, and the rest.
template <typename Optimizer, typename OptimizerOptions>
MakeOptimizer with(OptimizerOptions options) {
  return [options](Net& net) -> std::unique_ptr<torch::optim::Optimizer> {
    auto decay = std::make_unique<OptimizerOptions>(options);
    decay->weight_decay(0.1);
    std::vector<at::Tensor> weights{net.first->linear->weight, net.second->linear->weight, net.last->weight};
    std::vector<at::Tensor> rest{
        net.first->linear->bias, net.second->linear->bias, net.last->bias, net.scale, net.nothing, net.frozen};
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(weights, std::move(decay));
    groups.emplace_back(rest, std::make_unique<OptimizerOptions>(options));
    return std::make_unique<Optimizer>(groups, options);
  };
}

struct Setting {
  MakeOptimizer optimizer;
  Options options;
  double clip = 0;
  int steps = 50;
};

struct Seen {
  std::vector<double> losses;
  at::Tensor parameters;  // after finish()
  std::int64_t state_elements = 0;
};

at::Tensor flat_copy(Net& net) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& p : net.parameters()) all.push_back(p.detach().reshape({-1}).clone());
  return at::cat(all);
}

std::vector<Seen> train(int workers, const Setting& setting) {
  std::vector<Seen> seen(static_cast<std::size_t>(workers));
  run_workers(workers, [&](const Cluster& cluster) {
    Net net;
    auto optimizer = setting.optimizer(net);
    Synchronizer sync(cluster, net, *optimizer, setting.options);
    if (setting.clip > 0) sync.before_inner_step([&] { sync.clip_gradients(setting.clip); });
    Seen& mine = seen[static_cast<std::size_t>(cluster.rank())];
    auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + cluster.rank()));
    for (int step = 0; step < setting.steps; ++step) {
      optimizer->zero_grad();
      for (int pass = 0; pass < setting.options.accumulation_steps; ++pass) {
        const at::Tensor x = at::randn({4, 13}, random);
        const at::Tensor loss = net.loss(x, x.slice(1, 0, 5).sin());
        (loss / setting.options.accumulation_steps).backward();
        mine.losses.push_back(loss.item<double>());
      }
      sync.step();
    }
    sync.finish();
    mine.parameters = flat_copy(net);
    for (const auto& group : optimizer->param_groups()) {
      for (const at::Tensor& p : group.params()) {
        if (optimizer->state().count(p.unsafeGetTensorImpl()) > 0) mine.state_elements += p.numel();
      }
    }
  });
  return seen;
}

/// Bit for bit if `tolerance` is 0.
void expect_equal(const std::vector<Seen>& a, const std::vector<Seen>& b, double tolerance) {
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    ASSERT_EQ(a[rank].losses.size(), b[rank].losses.size());
    for (std::size_t i = 0; i < a[rank].losses.size(); ++i) {
      ASSERT_NEAR(a[rank].losses[i], b[rank].losses[i], tolerance * (1 + a[rank].losses[i])) << "loss " << i;
    }
    ASSERT_TRUE(at::allclose(a[rank].parameters, b[rank].parameters, tolerance, tolerance));
  }
}

const std::vector<std::pair<std::string, MakeOptimizer>>& optimizers() {
  using namespace torch::optim;
  static const std::vector<std::pair<std::string, MakeOptimizer>> all{
      {"sgd", with<SGD>(SGDOptions(0.05).momentum(0.9))}, {"adam", with<Adam>(AdamOptions(0.01))},
      {"adamw", with<AdamW>(AdamWOptions(0.01))},         {"adagrad", with<Adagrad>(AdagradOptions(0.05))},
      {"rmsprop", with<RMSprop>(RMSpropOptions(0.003))},
  };
  return all;
}

// The in-process backend adds in the order of ranks, so sums are the same bits whoever takes them. Only what adds in
// another order may differ: the norm for clipping, and passes that travel one by one (stages 2 and 3 with
// accumulation).
constexpr double kOtherOrder = 2e-5;

TEST(Zero, EveryStageTrainsAsStageZero) {
  for (const int workers : {2, 4}) {
    for (const auto& [name, optimizer] : optimizers()) {
      for (const int accumulation : {1, 3}) {
        for (const double clip : {0.0, 0.5}) {
          // With four workers some of it will do, to save time: what differs is how much is added up.
          if (workers == 4 && ((accumulation == 1) != (clip == 0) || name == "adagrad" || name == "rmsprop")) continue;
          const auto run = [&](int stage) {
            const Options options{
                .strategy = Strategy::kDdp, .accumulation_steps = accumulation, .bucket_bytes = 1024, .zero = stage};
            return train(workers, {optimizer, options, clip});
          };
          const auto reference = run(0);
          for (const int stage : {1, 2, 3}) {
            SCOPED_TRACE(name + ", " + std::to_string(workers) + " workers, stage " + std::to_string(stage) +
                         ", accumulation " + std::to_string(accumulation) + ", clip " + std::to_string(clip));
            const bool other_order = clip > 0 || (stage >= 2 && accumulation > 1);
            expect_equal(reference, run(stage), other_order ? kOtherOrder : 0);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(Zero, EveryStageTrainsAsStageZeroBetweenIslands) {
  for (const Strategy strategy : {Strategy::kCo2, Strategy::kCo2Paper, Strategy::kSlowMo, Strategy::kStreamingDiLoCo}) {
    for (const auto& [name, optimizer] : optimizers()) {
      for (const int fragments : {1, 4}) {
        const bool whole_only = strategy == Strategy::kCo2Paper || strategy == Strategy::kSlowMo;
        if (fragments > 1 && (whole_only || name != "adamw")) continue;
        if (strategy != Strategy::kCo2 && name != "adamw" && name != "sgd") continue;
        const auto run = [&](int stage) {
          const Options options{.strategy = strategy,
                                .local_steps = 6,
                                .fragments = fragments,
                                .momentum = 0.3,
                                .bucket_bytes = 1024,
                                .island_size = 2,
                                .zero = stage};
          return train(4, {optimizer, options});
        };
        const auto reference = run(0);
        EXPECT_TRUE(reference[0].parameters.equal(reference[3].parameters)) << "all workers end with the same model";
        for (const int stage : {1, 2, 3}) {
          SCOPED_TRACE(std::string(co2::name(strategy)) + ", " + name + ", stage " + std::to_string(stage) + ", " +
                       std::to_string(fragments) + " fragments");
          expect_equal(reference, run(stage), 0);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Two islands of two are two workers that see the samples of both. With one fragment: with several, the elements that
// travel first depend on how the shards are cut.
TEST(Zero, AnIslandIsOneWorkerWithMoreSamples) {
  for (const Strategy strategy : {Strategy::kCo2, Strategy::kCo2Paper, Strategy::kSlowMo}) {
    for (const ClipMode clip_mode : {ClipMode::kValue, ClipMode::kNorm}) {
      const Options one{.strategy = strategy,
                        .local_steps = 6,
                        .fragments = 1,
                        .momentum = 0.3,
                        .clip = 2.0,
                        .clip_mode = clip_mode,
                        .wire = Wire::kPlain,
                        .bucket_bytes = 1024};
      Options many = one;
      many.island_size = 2;
      const auto islands = train(4, {optimizers()[0].second, many});

      std::vector<at::Tensor> alone(2);
      run_workers(2, [&](const Cluster& cluster) {
        Net net;
        auto optimizer = optimizers()[0].second(net);
        Synchronizer sync(cluster, net, *optimizer, one);
        std::vector<at::Generator> random;
        for (int i = 0; i < 2; ++i) {
          random.push_back(at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + 2 * cluster.rank() + i)));
        }
        for (int step = 0; step < 50; ++step) {
          optimizer->zero_grad();
          for (at::Generator& generator : random) {
            const at::Tensor x = at::randn({4, 13}, generator);
            (net.loss(x, x.slice(1, 0, 5).sin()) / 2).backward();
          }
          sync.step();
        }
        sync.finish();
        alone[static_cast<std::size_t>(cluster.rank())] = flat_copy(net);
      });
      EXPECT_TRUE(at::allclose(islands[0].parameters, alone[0], 1e-4, 1e-5)) << name(strategy);
    }
  }
}

// Forward and backward round to eight bits; the weights themselves must not.
TEST(Zero, Bfloat16ComputesWithRoundedCopiesOfTheWeights) {
  const Options plain{.strategy = Strategy::kDdp, .bucket_bytes = 1024, .zero = 1};
  const auto reference = train(2, {optimizers()[2].second, plain});
  for (const int stage : {1, 2, 3}) {
    Options options = plain;
    options.zero = stage;
    options.compute = Compute::kBfloat16;
    const auto seen = train(2, {optimizers()[2].second, options});
    EXPECT_EQ(seen[0].parameters.scalar_type(), at::kFloat);
    EXPECT_TRUE(seen[0].parameters.equal(seen[1].parameters));
    EXPECT_FALSE(seen[0].parameters.equal(seen[0].parameters.to(at::kBFloat16).to(at::kFloat)));
    EXPECT_TRUE(at::allclose(seen[0].parameters, reference[0].parameters, 0, 0.1)) << stage;
    EXPECT_FALSE(seen[0].parameters.equal(reference[0].parameters));
  }
}

// One worker's rounded copies: an update far below the spacing of bfloat16 must not be lost.
TEST(Zero, SmallUpdatesAreKeptInTheWeights) {
  run_workers(2, [](const Cluster& cluster) {
    torch::nn::Linear model(1, 1);
    {
      const at::NoGradGuard no_grad;
      model->weight.fill_(1);
      model->bias.zero_();
    }
    torch::optim::SGD optimizer(model->parameters(), 1e-4);
    Synchronizer sync(cluster, *model, optimizer,
                      {.strategy = Strategy::kLocalSgd, .local_steps = 5, .compute = Compute::kBfloat16});
    for (int step = 0; step < 100; ++step) {
      optimizer.zero_grad();
      model->weight.sum().backward();
      EXPECT_EQ(model->weight.scalar_type(), at::kBFloat16);
      sync.step();
    }
    sync.finish();
    EXPECT_NEAR(model->weight.item<float>(), 0.99, 1e-4);
    // Training may go on after finish(), in bfloat16 again.
    optimizer.zero_grad();
    model->weight.sum().backward();
    sync.step();
    EXPECT_EQ(model->weight.scalar_type(), at::kBFloat16);
  });
}

// A worker that is an island by itself shares no gradients, so its samples can be weighed.
TEST(Zero, WeighsSamplesInBfloat16) {
  run_workers(2, [](const Cluster& cluster) {
    torch::nn::Linear model(torch::nn::LinearOptions(1, 1).bias(false));
    model->weight.data().fill_(1);
    torch::optim::SGD optimizer(model->parameters(), 0.01);
    Synchronizer sync(cluster, *model, optimizer,
                      {.strategy = Strategy::kLocalSgd, .local_steps = 1, .compute = Compute::kBfloat16});
    (model->weight.sum() * (cluster.rank() + 1)).backward();
    sync.step(cluster.rank() == 0 ? 3 : 1);
    EXPECT_NEAR(sync.consensus()[0].item<double>(), 1 - 0.01 * (3 * 1 + 1 * 2) / 4, 1e-6);
  });
}

TEST(Zero, TrainsOnAfterFinish) {
  for (const int stage : {0, 1, 2, 3}) {
    run_workers(2, [&](const Cluster& cluster) {
      Net net;
      auto optimizer = optimizers()[0].second(net);
      Synchronizer sync(cluster, net, *optimizer, {.strategy = Strategy::kDdp, .bucket_bytes = 1024, .zero = stage});
      auto random = at::detail::createCPUGenerator(7);
      double first = 0;
      double loss = 0;
      for (int step = 0; step < 40; ++step) {
        const at::Tensor x = at::randn({16, 13}, random);
        optimizer->zero_grad();
        const at::Tensor value = net.loss(x, x.slice(1, 0, 5).sin());
        value.backward();
        sync.step();
        loss = value.item<double>();
        if (step == 0) first = loss;
        if (step % 10 == 9) {
          sync.finish();
          const at::NoGradGuard no_grad;
          // The whole model is here: one worker may use it alone.
          if (cluster.rank() == 0) net.loss(x, x.slice(1, 0, 5).sin());
        }
      }
      EXPECT_LT(loss, 0.9 * first) << "stage " << stage;
    });
  }
}

TEST(Zero, ShowsTheConsensusOfAllIslands) {
  for (const int stage : {0, 1, 2, 3}) {
    std::vector<double> losses(4);
    run_workers(4, [&](const Cluster& cluster) {
      Net net;
      auto optimizer = optimizers()[0].second(net);
      Synchronizer sync(cluster, net, *optimizer,
                        {.strategy = Strategy::kCo2,
                         .local_steps = 4,
                         .fragments = 2,
                         .bucket_bytes = 1024,
                         .island_size = 2,
                         .zero = stage});
      auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + cluster.rank()));
      for (int step = 0; step < 7; ++step) {
        optimizer->zero_grad();
        const at::Tensor x = at::randn({4, 13}, random);
        net.loss(x, x.slice(1, 0, 5).sin()).backward();
        sync.step();
      }
      const auto loss = [&] {
        const at::NoGradGuard no_grad;
        const at::Tensor x = at::ones({4, 13});
        return net.loss(x, x.slice(1, 0, 5).sin()).item<double>();
      };
      const double live = loss();
      double consensus = 0;
      sync.with_consensus([&] { consensus = loss(); });
      EXPECT_NE(consensus, live);
      EXPECT_EQ(loss(), live);  // put back
      losses[static_cast<std::size_t>(cluster.rank())] = consensus;
    });
    for (const double loss : losses) EXPECT_EQ(loss, losses[0]) << stage;
  }
}

TEST(Zero, ShardsTheOptimizersState) {
  const auto state = [](int stage) {
    const Options options{.strategy = Strategy::kDdp, .bucket_bytes = 1024, .zero = stage};
    return train(4, {optimizers()[2].second, options, 0, 3})[0].state_elements;
  };
  const std::int64_t whole = state(0);
  EXPECT_EQ(whole, 13 * 37 + 37 + 37 * 37 + 37 + 37 * 5 + 5 + 1);
  // Alignment pads what is as small as this.
  EXPECT_LT(state(1), whole / 4 + 4 * 64);
  EXPECT_EQ(state(1), state(2));
  EXPECT_LT(state(3), whole / 4 + 8 * 64);
}

TEST(Zero, RefusesWhatItCantDo) {
  const auto message = [](int workers, const MakeOptimizer& optimizer, const Options& options) -> std::string {
    try {
      train(workers, {optimizer, options, 0, 1});
    } catch (const OptionError& error) {
      return error.what();
    }
    return "";
  };
  const MakeOptimizer sgd = optimizers()[0].second;
  EXPECT_NE(message(3, sgd, {.island_size = 2}).find("island_size = 2 is not allowed with 3 workers"),
            std::string::npos);
  EXPECT_NE(message(2, sgd, {.zero = 7}).find("zero = 7"), std::string::npos);
  EXPECT_NE(message(2, sgd, {.island_size = 0}).find("island_size = 0"), std::string::npos);
  EXPECT_NE(message(4, sgd, {.strategy = Strategy::kDdp, .island_size = 2}).find("one island of all 4 workers"),
            std::string::npos);
  // A model without units.
  const auto alone = [](const Cluster& cluster) {
    torch::nn::Linear model(3, 3);
    torch::optim::SGD plain(model->parameters(), 0.1);
    const Synchronizer sync(cluster, *model, plain, {.strategy = Strategy::kDdp, .zero = 3});
  };
  EXPECT_THROW(run_workers(2, alone), OptionError);
  struct Own : torch::optim::Optimizer {
    explicit Own(const std::vector<at::Tensor>& parameters)
        : Optimizer({torch::optim::OptimizerParamGroup(parameters)}, std::make_unique<torch::optim::SGDOptions>(0.1)) {}
    at::Tensor step(LossClosure) override { return {}; }
  };
  const MakeOptimizer own = [](Net& net) { return std::make_unique<Own>(net.parameters()); };
  EXPECT_NE(message(2, own, {.strategy = Strategy::kDdp, .zero = 1}).find("updates every element by itself"),
            std::string::npos);
}

}  // namespace
}  // namespace co2
