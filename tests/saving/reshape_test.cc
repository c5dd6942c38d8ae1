// Checkpoints that another number of workers, other islands or another ZeRO stage go on from.

#include <co2/checkpoint.h>
#include <co2/co2.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "support/refusal.h"
#include "support/saved_state.h"
#include "support/temporary.h"
#include "support/unit_model.h"
#include "support/workers.h"

namespace co2 {
namespace {

namespace fs = std::filesystem;
using test::refusal;
using test::run_workers;
using test::SavedState;
using test::StateWriter;
using test::TestFolder;
using test::unit_batch;

/// With a parameter whose memory is not in the order of its indices, and a buffer.
struct Model : test::UnitModel {
  Model() : UnitModel(3) {
    const auto values = at::arange(2 * 3 * 5 * 7, at::kFloat).reshape({2, 3, 5, 7}) / 1000;
    odd = register_parameter("odd", values.contiguous(at::MemoryFormat::ChannelsLast));
    seen = register_buffer("seen", at::zeros({2}));
    register_parameter("never", at::ones({5}));  // no gradient ever comes
    register_parameter("empty", at::zeros({0}));
  }
  at::Tensor loss_of(int step, int rank) {
    const at::NoGradGuard no_grad;
    seen += rank + 1;
    const at::AutoGradMode with_gradients(true);
    return loss(unit_batch(step, 0, rank)) + (odd * (odd - rank * at::arange(7))).sum();
  }
  at::Tensor everything() const { return at::cat({flat_copy(), odd.detach().reshape({-1}).clone()}); }
  at::Tensor odd, seen;
};

/// What a worker has, of any layout without ZeRO.
struct State {
  at::Tensor model, seen;
  std::vector<at::Tensor> means, squares;  // of AdamW, by parameter
  std::vector<std::int64_t> steps;
  std::map<std::string, at::Tensor> momentum;

  static State of(Model& model, torch::optim::Optimizer& optimizer) {
    State state{model.everything(), model.seen.clone(), {}, {}, {}, {}};
    for (const auto& item : model.named_parameters()) {
      const auto found = optimizer.state().find(item.value().unsafeGetTensorImpl());
      if (found == optimizer.state().end() || item.key() == "never" || item.key() == "empty") continue;
      auto& adam = static_cast<torch::optim::AdamWParamState&>(*found->second);
      state.means.push_back(adam.exp_avg().clone());
      state.squares.push_back(adam.exp_avg_sq().clone());
      state.steps.push_back(adam.step());
    }
    return state;
  }
};

std::map<std::string, at::Tensor> momentum_of(Synchronizer& sync) {
  SavedState saved;
  StateWriter writer(saved);
  sync.visit(writer);
  std::erase_if(saved.tensors, [](const auto& item) { return !item.first.starts_with("momentum/"); });
  return saved.tensors;
}

struct Layout {
  int workers = 1;
  int island_size = 1;
  int zero = 0;
};

Options with(Options options, const Layout& layout) {
  if (options.strategy != Strategy::kDdp) options.island_size = layout.island_size;  // that is one island of all
  options.zero = layout.zero;
  return options;
}

using Body = std::function<void(const Cluster&, Model&, torch::optim::Optimizer&, Synchronizer&)>;

void on_workers(const Layout& layout, const Options& options, const Body& body) {
  run_workers(layout.workers, [&](const Cluster& cluster) {
    Model model;
    torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.01));
    Synchronizer sync(cluster, model, optimizer, with(options, layout));
    body(cluster, model, optimizer, sync);
  });
}

void take_steps(Model& model, torch::optim::Optimizer& optimizer, Synchronizer& sync, int from, int to, int rank) {
  for (int step = from; step < to; ++step) {
    optimizer.zero_grad();
    model.loss_of(step, rank).backward();
    sync.step();
  }
}

constexpr int kStep = 6;  // in the middle of a round, with something in flight

/// Trains to kStep, saves, and goes on to finish(): by rank what was there when it was saved, and by rank the end.
std::pair<std::vector<State>, std::vector<State>> train_and_save(const Layout& layout, const Options& options,
                                                                 const fs::path& folder) {
  std::vector<State> saved(static_cast<std::size_t>(layout.workers)), ended = saved;
  on_workers(layout, options, [&](const Cluster& cluster, Model& model, auto& optimizer, Synchronizer& sync) {
    const auto rank = static_cast<std::size_t>(cluster.rank());
    Saver saver(cluster, folder);
    take_steps(model, optimizer, sync, 0, kStep, cluster.rank());
    std::int64_t mine = 40 + cluster.rank();
    saver.save(sync, [&](StateVisitor& visitor) { visitor.number("mine", mine); });
    saver.wait();
    EXPECT_EQ(saver.reports().at(0).problem, "");
    if (layout.zero == 0) saved[rank] = State::of(model, optimizer);
    sync.finish();
    ended[rank] = State::of(model, optimizer);
    ended[rank].momentum = momentum_of(sync);
  });
  return {saved, ended};
}

/// What each worker has after it was restored; it is saved again into `again`, if given, and trains on.
std::vector<State> restore(const Layout& layout, const Options& options, const fs::path& folder,
                           const fs::path& again = {}) {
  std::vector<State> states(static_cast<std::size_t>(layout.workers));
  std::vector<at::Tensor> ends(states.size());
  on_workers(layout, options, [&](const Cluster& cluster, Model& model, auto& optimizer, Synchronizer& sync) {
    const auto rank = static_cast<std::size_t>(cluster.rank());
    Saver saver(cluster, folder);
    std::int64_t mine = 0;
    const auto show = [&](StateVisitor& visitor) { visitor.number("mine", mine); };
    EXPECT_EQ(saver.restore(sync, show), kStep);
    EXPECT_TRUE(saver.reshapes());
    EXPECT_EQ(mine, 40);  // worker 0's
    EXPECT_EQ(sync.steps(), kStep);
    if (layout.zero < 3) states[rank] = State::of(model, optimizer);
    states[rank].momentum = momentum_of(sync);
    if (!again.empty()) {
      Saver other(cluster, again);
      other.save(sync, show);
      other.wait();
      EXPECT_EQ(other.reports().at(0).problem, "");
    }
    if (layout.zero == 3) {
      sync.finish();
      states[rank].model = model.everything();
    }
    take_steps(model, optimizer, sync, kStep, kStep + 12, cluster.rank());
    sync.finish();
    ends[rank] = model.everything();
    EXPECT_TRUE(ends[rank].isfinite().all().item<bool>());
    EXPECT_FALSE(ends[rank].equal(states[rank].model));
  });
  for (const at::Tensor& end : ends) EXPECT_TRUE(end.equal(ends[0]));
  return states;
}

at::Tensor mean(const std::vector<at::Tensor>& tensors) { return at::stack(tensors).mean(0); }

TEST(Reshape, EveryWorkerBeginsWithWhatFinishWouldHaveLeft) {
  const std::vector<Options> kinds = {
      {.local_steps = 4, .fragments = 2, .momentum = 0.3},
      {.local_steps = 4, .fragments = 1, .momentum = 0.3, .wire = Wire::kInt2},
      {.strategy = Strategy::kCo2Paper, .local_steps = 4},
      {.strategy = Strategy::kSlowMo, .local_steps = 4},
      {.strategy = Strategy::kStreamingDiLoCo, .local_steps = 4},
      {.strategy = Strategy::kDdp},
  };
  const std::vector<Layout> layouts = {{1}, {2}, {4}, {4, 2, 0}, {4, 2, 1}, {4, 2, 2}, {2, 2, 3}, {4, 2, 3}};
  for (const Options& options : kinds) {
    const TestFolder folder;
    const auto [saved, ended] = train_and_save({3}, options, folder / "run");
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(fmt::format("{}: from 3 workers to {} in islands of {}, zero {}", name(options.strategy),
                               layout.workers, layout.island_size, layout.zero));
      fs::copy(folder / "run", folder / "copy", fs::copy_options::recursive);
      const auto states = restore(layout, options, folder / "copy");
      fs::remove_all(folder / "copy");
      for (const State& state : states) {
        EXPECT_TRUE(state.model.equal(ended[0].model));
        if (layout.zero == 3) continue;
        EXPECT_TRUE(state.seen.equal(ended[0].seen));
        if (layout.zero > 0) continue;
        ASSERT_EQ(state.means.size(), saved[0].means.size());
        for (std::size_t i = 0; i < state.means.size(); ++i) {
          EXPECT_TRUE(
              state.means[i].allclose(mean({saved[0].means[i], saved[1].means[i], saved[2].means[i]}), 1e-5, 1e-8));
          EXPECT_TRUE(state.squares[i].allclose(mean({saved[0].squares[i], saved[1].squares[i], saved[2].squares[i]}),
                                                1e-5, 1e-8));
          EXPECT_EQ(state.steps[i], kStep);
        }
        if (layout.island_size > 1) continue;
        ASSERT_EQ(state.momentum.size(), ended[0].momentum.size());
        for (const auto& [name, value] : state.momentum) EXPECT_TRUE(value.equal(ended[0].momentum.at(name))) << name;
      }
    }
  }
}

TEST(Reshape, ShardsComeTogetherAgain) {
  const Options options{.local_steps = 4, .fragments = 2, .momentum = 0.3};
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    const TestFolder folder;
    const auto [saved, ended] = train_and_save({2}, options, folder / "run");
    restore({4, 2, zero}, options, folder / "run", folder / "again");
    const auto states = restore({1}, options, folder / "again");  // what four workers have, which took no step
    EXPECT_TRUE(states[0].model.allclose(ended[0].model, 0, 1e-7));
    ASSERT_EQ(states[0].means.size(), saved[0].means.size());
    for (std::size_t i = 0; i < states[0].means.size(); ++i) {
      EXPECT_TRUE(states[0].means[i].allclose(mean({saved[0].means[i], saved[1].means[i]}), 1e-5, 1e-8));
      EXPECT_TRUE(states[0].squares[i].allclose(mean({saved[0].squares[i], saved[1].squares[i]}), 1e-5, 1e-8));
      EXPECT_EQ(states[0].steps[i], kStep);
    }
    for (const auto& [name, value] : states[0].momentum) EXPECT_TRUE(value.equal(ended[0].momentum.at(name))) << name;
  }
}

TEST(Reshape, WhatWasInFlightBetweenIslandsIsApplied) {
  // From islands with ZeRO, whose fragments are of shards.
  const Options options{.local_steps = 4, .fragments = 2, .momentum = 0.3, .wire = Wire::kInt4};
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    const TestFolder folder;
    const auto [saved, ended] = train_and_save({4, 2, zero}, options, folder / "run");
    for (const State& state : restore({3}, options, folder / "run")) EXPECT_TRUE(state.model.equal(ended[0].model));
  }
}

/// Restores, takes a step and saves that; a file of it gets lost.
void add_a_newer_one(const Layout& layout, const Options& options, const fs::path& folder) {
  on_workers(layout, options, [&](const Cluster& cluster, Model& model, auto& optimizer, Synchronizer& sync) {
    std::int64_t mine = 0;
    const auto show = [&](StateVisitor& visitor) { visitor.number("mine", mine); };
    Saver saver(cluster, folder);
    saver.restore(sync, show);
    take_steps(model, optimizer, sync, kStep, kStep + 1, cluster.rank());
    saver.save(sync, show);
    saver.wait();
  });
  fs::remove(folder / "checkpoints/step-000000000007/worker-00001.safetensors");
}

TEST(Reshape, TheNewestGoodOneDecidesWhateverLayoutADamagedOneHas) {
  const Options options{.local_steps = 4};
  for (const int newer : {2, 3}) {
    for (const int now : {2, 3}) {
      SCOPED_TRACE(fmt::format("2 workers, then {} that were damaged, now {}", newer, now));
      const TestFolder folder;
      train_and_save({2}, options, folder / "run");
      add_a_newer_one({newer}, options, folder / "run");
      on_workers({now}, options, [&](const Cluster& cluster, Model&, auto&, Synchronizer& sync) {
        std::int64_t mine = 0;
        Saver saver(cluster, folder / "run");
        EXPECT_EQ(saver.restore(sync, [&](StateVisitor& visitor) { visitor.number("mine", mine); }), kStep);
        EXPECT_EQ(saver.reshapes(), now != 2);
        EXPECT_EQ(mine, now == 2 ? 40 + cluster.rank() : 40);
        ASSERT_EQ(saver.passed_over().size(), 1u);
        EXPECT_NE(saver.passed_over()[0].first.string().find("step-000000000007"), std::string::npos);
      });
    }
  }
}

TEST(Reshape, AWorkerWhoseNumbersAreNotFinitePoisonsNobody) {
  const Options options{.local_steps = 4};
  const TestFolder folder;
  on_workers({3}, options, [&](const Cluster& cluster, Model& model, auto& optimizer, Synchronizer& sync) {
    take_steps(model, optimizer, sync, 0, kStep - 1, cluster.rank());
    optimizer.zero_grad();
    const double factor = cluster.rank() == 1 ? std::numeric_limits<double>::quiet_NaN() : 1;
    (model.loss_of(kStep - 1, cluster.rank()) * factor).backward();
    sync.step();
    std::int64_t mine = 40;
    Saver saver(cluster, folder / "run");
    saver.save(sync, [&](StateVisitor& visitor) { visitor.number("mine", mine); });
    saver.wait();
  });
  for (const State& state : restore({2}, options, folder / "run")) {
    for (const at::Tensor& each : state.means) EXPECT_TRUE(each.isfinite().all().item<bool>());
  }
}

TEST(Reshape, AllWorkersRefuseWhatRankZeroCanNotPutTogether) {
  const Options options{.local_steps = 4};
  const TestFolder folder;
  train_and_save({2}, options, folder / "run");
  for (const auto& entry : fs::directory_iterator(folder / "run/checkpoints/step-000000000006")) {
    if (entry.path().filename().string().find("1.safetensors") != std::string::npos) fs::remove(entry.path());
  }
  const Body restores = [&](const Cluster& cluster, Model&, auto&, Synchronizer& sync) {
    Saver saver(cluster, folder / "run");
    const std::string message = refusal<DataError>([&] { saver.restore(sync); });
    EXPECT_NE(message, "") << cluster.rank();
    if (cluster.rank() == 0) {
      EXPECT_NE(message.find("no checkpoint in"), std::string::npos) << message;
    }
  };
  on_workers({3}, options, restores);
}

TEST(Reshape, OtherOptionsThanTheLayoutAreRefused) {
  const TestFolder folder;
  train_and_save({2}, {.local_steps = 4}, folder / "run");
  on_workers({3}, {.local_steps = 5}, [&](const Cluster& cluster, Model&, auto&, Synchronizer& sync) {
    Saver saver(cluster, folder / "run");
    const std::string message = refusal<DataError>([&] { saver.restore(sync); });
    EXPECT_NE(message, "") << cluster.rank();
    if (cluster.rank() == 0) {
      EXPECT_NE(message.find("local_steps"), std::string::npos) << message;
    }
  });
}

/// Adagrad insists on state of everything that it updates: of padding that is alone in a worker's tensor, and of
/// parameters without elements.
TEST(Reshape, AdagradGoesOnInAnyLayout) {
  const std::vector<std::pair<int, int>> layouts = {{4, 1}, {1, 0}, {3, 3}, {5, 2}, {2, 0}, {4, 3}};  // workers, zero
  const TestFolder folder;
  Model alone;  // on one worker, with plain LibTorch
  torch::optim::Adagrad reference(alone.parameters(), torch::optim::AdagradOptions(0.01));
  int step = 0;
  for (const auto& [workers, zero] : layouts) {
    for (int i = 0; i < 2; ++i) {
      reference.zero_grad();
      alone.loss_of(step + i, 0).backward();
      reference.step();
    }
    std::vector<at::Tensor> ends(static_cast<std::size_t>(workers));
    run_workers(workers, [&, workers = workers, zero = zero](const Cluster& cluster) {
      Model model;
      torch::optim::Adagrad optimizer(model.parameters(), torch::optim::AdagradOptions(0.01));
      Synchronizer sync(cluster, model, optimizer, {.strategy = Strategy::kDdp, .zero = zero});
      Saver saver(cluster, folder / "run");
      if (step > 0) {
        EXPECT_EQ(saver.restore(sync), step);
      }
      for (int i = 0; i < 2; ++i) {
        optimizer.zero_grad();
        model.loss_of(step + i, 0).backward();  // all have the same batch
        sync.step();
      }
      saver.save(sync);
      saver.wait();
      sync.finish();
      ends[static_cast<std::size_t>(cluster.rank())] = model.everything();
    });
    step += 2;
    for (const at::Tensor& end : ends) {
      EXPECT_TRUE(at::allclose(end, alone.everything(), 1e-5, 1e-6)) << workers << " workers, zero " << zero;
    }
  }
}

TEST(Reshape, ACoreGoesOnWithItsOwnLayoutOnly) {
  const TestFolder folder;
  train_and_save({2}, {.local_steps = 4}, folder / "run");
  run_workers(3, [&](const Cluster& cluster) {
    Core core(cluster, {.parameters = {{at::zeros({3}).requires_grad_(), "p"}}}, {.local_steps = 4});
    Saver saver(cluster, folder / "run");
    EXPECT_NE(refusal<DataError>([&] { saver.restore(core, {}, {}); }).find("another number of workers"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace co2
