// A run that is written down between two steps, in the middle of a round, and goes on in another process's place: here
// in new objects that began with other parameters.

#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "options/wires.h"
#include "support/gate.h"
#include "support/life.h"
#include "support/saved_state.h"
#include "support/toy.h"
#include "support/unit_model.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;
using test::SavedState;
using test::StateReader;
using test::StateWriter;
using test::unit_batch;
using test::UnitModel;

constexpr int kSteps = 11;

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(UnitModel&)>;

std::unique_ptr<torch::optim::Optimizer> adamw(UnitModel& model) {
  std::vector<at::Tensor> weights, rest;
  for (const at::Tensor& p : model.parameters()) (p.dim() > 1 ? weights : rest).push_back(p);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(rest);
  groups.emplace_back(weights);
  return std::make_unique<torch::optim::AdamW>(groups,
                                               torch::optim::AdamWOptions(0.01).weight_decay(0.1).amsgrad(true));
}

/// What every worker holds at the end.
struct Ends {
  std::vector<at::Tensor> models;
  std::vector<at::Tensor> consensuses;
};

/// Everybody's snapshot after every step of a run, and how many of them were complete only later.
struct Snapshots {
  std::vector<std::vector<SavedState>> after_step;  ///< [step][rank]
  std::atomic<int> late = 0;
  std::atomic<int> incomplete = 0;
};

/// Trains steps `begin` to `end` on all workers, on from `load` if there is one; writes down what there is then to
/// `save`, or else finishes. Takes a snapshot after every step if there is somewhere to put it.
Ends train(const Options& options, int workers, const MakeOptimizer& make, int begin, int end,
           const std::vector<SavedState>* load, std::vector<SavedState>* save, Snapshots* snapshots = nullptr) {
  const auto size = static_cast<std::size_t>(workers);
  Ends ends{std::vector<at::Tensor>(size), std::vector<at::Tensor>(size)};
  if (save != nullptr) save->resize(size);
  std::function<void()> wire;
  if (snapshots != nullptr) {
    snapshots->after_step.assign(static_cast<std::size_t>(end), std::vector<SavedState>(size));
    wire = [] { std::this_thread::sleep_for(std::chrono::microseconds(500)); };  // so that it is not over at once
  }
  run_workers(Cluster::in_process(workers, wire), [&](const Cluster& cluster) {
    const auto rank = static_cast<std::size_t>(cluster.rank());
    UnitModel model(3);
    if (load != nullptr) {
      const at::NoGradGuard no_grad;
      for (const at::Tensor& p : model.parameters()) p.fill_(7);
    }
    const auto optimizer = make(model);
    Synchronizer sync(cluster, model, *optimizer, options);
    if (load != nullptr) {
      StateReader reader((*load)[rank]);
      sync.visit(reader);
      EXPECT_TRUE(reader.has_read_all());
      EXPECT_EQ(sync.steps(), begin);
    }
    for (int step = begin; step < end; ++step) {
      for (auto& group : optimizer->param_groups()) group.options().set_lr(0.02 / (1 + step));
      optimizer->zero_grad();
      model.loss(unit_batch(step, 0, cluster.rank())).backward();
      sync.step();
      if (snapshots == nullptr) continue;
      const auto shown = std::make_shared<std::atomic<bool>>(false);
      sync.snapshot(std::make_shared<StateWriter>(snapshots->after_step[static_cast<std::size_t>(step)][rank]),
                    [shown, snapshots](bool complete) {
                      *shown = true;
                      if (!complete) ++snapshots->incomplete;
                    });
      if (!*shown) ++snapshots->late;
    }
    if (save != nullptr) {
      StateWriter writer((*save)[rank]);
      sync.visit(writer);
      return;
    }
    sync.finish();
    ends.models[rank] = model.flat_copy();
    ends.consensuses[rank] = sync.consensus().clone();
  });
  return ends;
}

void expect_same_bits(const Options& options, int workers, const MakeOptimizer& make, bool overlapped,
                      const std::string& what) {
  const Ends undisturbed = train(options, workers, make, 0, kSteps, nullptr, nullptr);
  Snapshots snapshots;
  const Ends whole = train(options, workers, make, 0, kSteps, nullptr, nullptr, &snapshots);
  EXPECT_EQ(snapshots.incomplete, 0) << what;
  EXPECT_TRUE(overlapped || snapshots.late == 0) << what;
  for (std::size_t rank = 0; rank < whole.models.size(); ++rank) {
    EXPECT_TRUE(undisturbed.models[rank].equal(whole.models[rank])) << what << ": somebody looking on changes nothing";
  }
  std::int64_t in_flight = 0;
  for (int cut = 1; cut < kSteps; ++cut) {
    const std::vector<SavedState>& saved = snapshots.after_step[static_cast<std::size_t>(cut - 1)];
    in_flight += saved.front().in_flight();
    const Ends again = train(options, workers, make, cut, kSteps, &saved, nullptr);
    for (std::size_t rank = 0; rank < whole.models.size(); ++rank) {
      EXPECT_TRUE(again.models[rank].equal(whole.models[rank])) << what << ", cut at " << cut << ", rank " << rank;
      EXPECT_TRUE(again.consensuses[rank].equal(whole.consensuses[rank])) << what << ", cut at " << cut;
    }
  }
  EXPECT_EQ(in_flight > 0, overlapped) << what;
}

bool exchanges_progress(Strategy strategy) { return strategy != Strategy::kNone && strategy != Strategy::kDdp; }
bool overlaps(Strategy strategy) {
  return exchanges_progress(strategy) && strategy != Strategy::kLocalSgd && strategy != Strategy::kSlowMo &&
         strategy != Strategy::kDiLoCo;
}

TEST(State, EveryStrategyGoesOnToTheSameBits) {
  for (const Strategy strategy : all_strategies()) {
    for (const Wire wire : {Wire::kPlain, Wire::kBfloat16, Wire::kInt4, Wire::kInt2}) {
      if (wire != Wire::kPlain && !exchanges_progress(strategy)) continue;
      const bool overwrites = strategy == Strategy::kCo2Paper || strategy == Strategy::kEagerDiLoCo;
      if (in_blocks(wire) && (!overlaps(strategy) || overwrites)) continue;  // they refuse it
      if (wire == Wire::kInt2 && strategy != Strategy::kCo2) continue;       // one is enough
      Options options{.strategy = strategy, .local_steps = 4, .wire = wire};
      if (strategy == Strategy::kCo2) options.momentum = 0.3;
      expect_same_bits(options, 3, adamw, overlaps(strategy), fmt::format("{} {}", name(strategy), name(wire)));
    }
  }
}

TEST(State, EveryZeroStageGoesOnToTheSameBits) {
  for (int zero = 0; zero <= 3; ++zero) {
    expect_same_bits({.strategy = Strategy::kDdp, .zero = zero}, 2, adamw, false, fmt::format("ddp, zero {}", zero));
    for (const Strategy strategy : {Strategy::kCo2, Strategy::kCo2Paper}) {
      expect_same_bits({.strategy = strategy, .local_steps = 4, .momentum = 0.3, .island_size = 2, .zero = zero}, 4,
                       adamw, true, fmt::format("{}, zero {}", name(strategy), zero));
    }
  }
  expect_same_bits({.local_steps = 3, .island_size = 2, .zero = 2, .compute = Compute::kBfloat16}, 4, adamw, true,
                   "computing in bfloat16");
}

TEST(State, OtherOptimizersGoOnToTheSameBits) {
  using namespace torch::optim;
  const std::vector<std::pair<const char*, MakeOptimizer>> optimizers = {
      {"sgd", [](UnitModel& m) { return std::make_unique<SGD>(m.parameters(), SGDOptions(0.01).momentum(0.9)); }},
      {"adam", [](UnitModel& m) { return std::make_unique<Adam>(m.parameters(), AdamOptions(0.01)); }},
      {"rmsprop",
       [](UnitModel& m) {
         return std::make_unique<RMSprop>(m.parameters(), RMSpropOptions(0.01).momentum(0.5).centered(true));
       }},
      {"adagrad", [](UnitModel& m) { return std::make_unique<Adagrad>(m.parameters(), AdagradOptions(0.01)); }},
  };
  for (const auto& [what, make] : optimizers) {
    for (const int zero : {0, 1}) {
      expect_same_bits({.local_steps = 4, .island_size = zero > 0 ? 2 : 1, .zero = zero}, zero > 0 ? 4 : 2, make, true,
                       fmt::format("{}, zero {}", what, zero));
    }
  }
}

/// Trains some of its parameters only at first. Its rate, which falls from step to step, tells how far it is.
struct FreezesLater : torch::optim::SGD {
  explicit FreezesLater(UnitModel& model) : SGD(model.parameters(), torch::optim::SGDOptions(0.01)) {}
  at::Tensor step(LossClosure closure) override {
    auto& group = param_groups().front();
    if (group.options().get_lr() < 0.004) {
      for (std::size_t i = 0; i < group.params().size(); i += 2) group.params()[i].mutable_grad().reset();
    }
    return SGD::step(std::move(closure));
  }
};

/// Who has trained what since the last launch decides what momentum moves.
TEST(State, WhatIsFrozenStaysSo) {
  for (const Wire wire : {Wire::kPlain, Wire::kInt4}) {
    expect_same_bits(
        {.local_steps = 4, .momentum = 0.5, .wire = wire}, 2,
        [](UnitModel& m) { return std::make_unique<FreezesLater>(m); }, true,
        fmt::format("frozen later, {}", name(wire)));
  }
}

/// Batch norm has statistics, which are averaged in the background.
TEST(State, BuffersAndTheirAverageGoOn) {
  struct Net : torch::nn::Module {
    Net() {
      norm = register_module("norm", torch::nn::BatchNorm1d(3));
      last = register_module("last", torch::nn::Linear(3, 1));
      const at::NoGradGuard no_grad;
      last->weight.fill_(0.3);
      last->bias.fill_(0.1);
    }
    torch::nn::BatchNorm1d norm{nullptr};
    torch::nn::Linear last{nullptr};
  };
  const auto run = [](const test::Life& life) {
    std::vector<at::Tensor> ends(2);
    run_workers(2, [&](const Cluster& cluster) {
      const auto rank = static_cast<std::size_t>(cluster.rank());
      Net net;
      torch::optim::SGD optimizer(net.parameters(), 0.05);
      Synchronizer sync(cluster, net, optimizer, {.strategy = Strategy::kCo2, .local_steps = 3});
      test::live(life, cluster.rank(), sync, [&](int step) {
        auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(10 * step + cluster.rank()));
        optimizer.zero_grad();
        net.last(net.norm(at::randn({8, 3}, random))).square().mean().backward();
        sync.step();
      });
      if (life.save != nullptr) return;
      sync.finish();
      ends[rank] = at::cat({net.norm->running_mean, net.norm->running_var, net.last->weight.detach().view({-1})});
    });
    return ends;
  };
  const auto whole = run({.end = 10});
  for (int cut = 1; cut < 10; ++cut) {
    std::vector<SavedState> saved(2);
    run({.end = cut, .save = &saved});
    EXPECT_EQ(saved[0].integers.at("buffer_average/in_flight"), cut >= 3 ? 1 : 0);
    const auto again = run({.begin = cut, .end = 10, .load = &saved});
    for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(again[rank].equal(whole[rank])) << cut;
  }
}

TEST(State, AnAutomaticPaceIsRemembered) {
  std::vector<SavedState> saved(2);
  std::vector<Pace> paces(2);
  const auto wire = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  for (const bool first : {true, false}) {
    run_workers(Cluster::in_process(2, wire), [&](const Cluster& cluster) {
      const auto rank = static_cast<std::size_t>(cluster.rank());
      UnitModel model(2);
      torch::optim::SGD optimizer(model.parameters(), 0.01);
      Synchronizer sync(cluster, model, optimizer, {});
      if (!first) {
        StateReader reader(saved[rank]);
        sync.visit(reader);
        EXPECT_TRUE(reader.has_read_all());
        EXPECT_EQ(sync.pace().local_steps, paces[rank].local_steps);
        EXPECT_EQ(sync.pace().fragments, paces[rank].fragments);
        EXPECT_EQ(sync.pace().step_seconds, paces[rank].step_seconds);
      }
      for (int step = 0; step < 60; ++step) {
        std::this_thread::sleep_for(std::chrono::microseconds(500));
        optimizer.zero_grad();
        model.loss(unit_batch(step, 0, cluster.rank())).backward();
        sync.step();
      }
      if (first) {
        StateWriter writer(saved[rank]);
        sync.visit(writer);
        paces[rank] = sync.pace();
      } else {
        sync.finish();  // compares the whole consensus
      }
    });
  }
  EXPECT_GT(paces[0].step_seconds, 0);
}

TEST(State, OfAnotherModelOrDamagedIsRefused) {
  std::vector<SavedState> saved;
  const Options options{.local_steps = 4};
  train(options, 2, adamw, 0, 6, nullptr, &saved);
  const auto refuses = [&](const std::function<void(SavedState&)>& damage) {
    std::vector<SavedState> damaged = saved;
    for (SavedState& state : damaged) damage(state);
    EXPECT_THROW(train(options, 2, adamw, 6, 8, &damaged, nullptr), Error);
  };
  refuses([](SavedState& s) { s.integers["exchange/fragments"] = -1; });
  refuses([](SavedState& s) { s.integers["exchange/fragments"] = std::int64_t{1} << 60; });
  refuses([](SavedState& s) { s.integers["exchange/round/local_steps"] = 0; });
  refuses([](SavedState& s) { s.integers["exchange/fragment/0/in_flight"] = 1 << 30; });
  refuses([](SavedState& s) { s.tensors.begin()->second = at::zeros({3}); });
  refuses([](SavedState& s) { s.numbers.erase(s.numbers.begin()); });
  // Numbers that no run has.
  refuses([](SavedState& s) { s.integers["exchange/steps"] = 1000; });
  refuses([](SavedState& s) { s.integers["exchange/round/begin"] = 1'000'000; });
  refuses([](SavedState& s) { s.integers["steps"] = -7; });
  refuses([](SavedState& s) { s.numbers["exchange/fragment/0/since_launch/samples"] = -3; });
  refuses([](SavedState& s) { s.numbers["exchange/rates/0"] = std::nan(""); });
  refuses([](SavedState& s) {
    for (auto& [name, value] : s.integers) {
      if (name.ends_with("/apply_step")) value = 100'000;
    }
  });
  // Runs that have the same names and sizes.
  for (const Options& other : {Options{.local_steps = 6}, Options{.local_steps = 4, .wire = Wire::kBfloat16},
                               Options{.local_steps = 4, .momentum = 0.2}, Options{.local_steps = 4, .delay = 1}}) {
    EXPECT_THROW(train(other, 2, adamw, 6, 8, &saved, nullptr), DataError);
  }
  const MakeOptimizer in_one_group = [](UnitModel& m) {
    return std::make_unique<torch::optim::AdamW>(m.parameters(), torch::optim::AdamWOptions(0.01).amsgrad(true));
  };
  EXPECT_THROW(train(options, 2, in_one_group, 6, 8, &saved, nullptr), DataError);
  std::swap(saved[0], saved[1]);
  EXPECT_THROW(train(options, 2, adamw, 6, 8, &saved, nullptr), DataError);
}

/// Nothing gets through, so whoever waited would wait for ever.
TEST(State, ASnapshotDoesNotWaitForTheWire) {
  for (const Wire wire : {Wire::kPlain, Wire::kInt4}) {
    test::Gate gate;
    std::barrier both(2);  // not over the wire, which is held
    std::vector<SavedState> later(2);
    run_workers(Cluster::in_process(2, gate.wire()), [&](const Cluster& cluster) {
      const auto rank = static_cast<std::size_t>(cluster.rank());
      const auto together = cluster.communicator("together");
      UnitModel model(3);
      const auto optimizer = adamw(model);
      Synchronizer sync(cluster, model, *optimizer, {.local_steps = 2, .fragments = 1, .wire = wire});
      const auto step = [&](int number) {
        optimizer->zero_grad();
        model.loss(unit_batch(number, 0, cluster.rank())).backward();
        sync.step();
      };
      step(0);
      step(1);
      step(2);
      sync.settle();  // blocks travel in two stages: the second may be yet to come
      together->barrier()->wait();
      both.arrive_and_wait();
      gate.close();
      both.arrive_and_wait();
      step(3);  // launches
      int complete = 0;
      sync.snapshot(std::make_shared<StateWriter>(later[rank]), [&](bool all) { complete += all ? 1 : 100; });
      EXPECT_EQ(complete, 0);
      EXPECT_FALSE(later[rank].tensors.contains("exchange/fragment/0/in_flight/0/sum"));
      step(4);
      both.arrive_and_wait();
      gate.open();
      step(5);  // applies
      EXPECT_EQ(complete, 1);
      EXPECT_TRUE(later[rank].tensors.contains("exchange/fragment/0/in_flight/0/sum"));
      sync.finish();
    });
  }
}

TEST(State, ASnapshotOfARunThatEndsIsNotComplete) {
  test::Gate gate;
  std::atomic<int> over = 0;
  std::vector<SavedState> saved(2);
  std::barrier both_have_one(2);  // not over the wire, which is held
  run_workers(Cluster::in_process(2, gate.wire()), [&](const Cluster& cluster) {
    const auto rank = static_cast<std::size_t>(cluster.rank());
    const auto together = cluster.communicator("together");
    {
      UnitModel model(3);
      const auto optimizer = adamw(model);
      Synchronizer sync(cluster, model, *optimizer, {.local_steps = 1, .wire = Wire::kPlain});
      together->barrier()->wait();
      both_have_one.arrive_and_wait();
      gate.close();
      both_have_one.arrive_and_wait();
      model.loss(unit_batch(0, 0, cluster.rank())).backward();
      sync.step();
      sync.snapshot(std::make_shared<StateWriter>(saved[rank]), [&](bool all) { over += all ? 100 : 1; });
      EXPECT_EQ(over, 0);
      both_have_one.arrive_and_wait();
      gate.open();
    }
  });
  EXPECT_EQ(over, 2);
}

TEST(State, NobodyGoesOnFromHalfOfIt) {
  run_workers(1, [](const Cluster& cluster) {
    at::Tensor weight = at::ones({5}).requires_grad_();
    Core core(cluster, {.parameters = {{weight, "weight"}}}, {.strategy = Strategy::kLocalSgd, .local_steps = 2});
    const SavedState nothing;
    StateReader reader(nothing);
    EXPECT_THROW(core.visit(reader), DataError);
    EXPECT_THROW(core.begin_step({}), DataError);
    EXPECT_THROW(core.finish(), DataError);
  });
}

TEST(State, IsSeenBetweenStepsOnly) {
  run_workers(1, [](const Cluster& cluster) {
    at::Tensor weight = at::ones({5}).requires_grad_();
    Core core(cluster, {.parameters = {{weight, "weight"}}}, {.strategy = Strategy::kLocalSgd, .local_steps = 2});
    SavedState saved;
    StateWriter writer(saved);
    EXPECT_THROW(core.end_step({}), OptionError);
    core.begin_step({});
    EXPECT_THROW(core.visit(writer), OptionError);
    core.end_step({});
    EXPECT_NO_THROW(core.visit(writer));
    EXPECT_TRUE(saved.tensors.contains("live/weight"));
    EXPECT_TRUE(saved.tensors.contains("consensus/weight"));
  });
}

/// While it is on its way, a worker remembers what rounding has left of it, to drop that with most of the rest.
TEST(State, WhatMayBeABurstIsPartOfIt) {
  constexpr int kBurst = 20;
  constexpr int kEnd = 30;
  const auto run = [](const test::Life& life) {
    std::vector<at::Tensor> ends(2);
    run_workers(2, [&](const Cluster& cluster) {
      test::Toy toy({200, 3});
      auto optimizer = test::plain_sgd(toy, 0.1);
      Synchronizer sync(cluster, toy, optimizer, {.local_steps = 4, .fragments = 2, .wire = Wire::kInt2});
      test::live(life, cluster.rank(), sync, [&](int step) {
        auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(10 * step + cluster.rank()));
        for (at::Tensor& p : toy.parameter) {
          p.mutable_grad() = (1 + at::randn(p.sizes(), random)) * (step == kBurst && cluster.rank() == 1 ? 1e3 : 1);
        }
        sync.step();
      });
      if (life.save != nullptr) return;
      EXPECT_EQ(sync.clipping().clipped, 2);
      sync.finish();
      ends[static_cast<std::size_t>(cluster.rank())] = at::cat({toy.parameter[0].detach(), toy.parameter[1].detach()});
    });
    return ends;
  };
  const auto whole = run({.end = kEnd});
  int seen = 0;
  for (int cut = kBurst - 1; cut < kBurst + 6; ++cut) {
    std::vector<SavedState> saved(2);
    run({.end = cut, .save = &saved});
    for (const auto& [name, value] : saved[1].integers)
      seen += name.ends_with("/may_be_burst") ? static_cast<int>(value) : 0;
    for (const auto& [name, value] : saved[0].integers) EXPECT_FALSE(name.ends_with("/may_be_burst") && value != 0);
    const auto again = run({.begin = cut, .end = kEnd, .load = &saved});
    for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(again[rank].equal(whole[rank])) << cut;
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace co2
