// The heart by itself: a list of tensors, no module, no optimizer.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/co2.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "outer/outer_pass.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;

at::Tensor leaf(std::vector<std::int64_t> sizes, double value = 0) { return at::full(sizes, value).requires_grad_(); }

void descend(const std::vector<TrainedTensor>& trained, double rate) {
  const at::NoGradGuard no_grad;
  for (const TrainedTensor& t : trained) {
    if (t.tensor.grad().defined()) t.tensor.sub_(t.tensor.grad(), rate);
    t.tensor.mutable_grad().reset();
  }
}

TEST(Core, TrainsAListOfTensors) {
  for (const Strategy strategy : all_strategies()) {
    std::vector<double> ends(3);
    run_workers(3, [&](const Cluster& cluster) {
      const at::Tensor a = leaf({3, 5}), b = leaf({7});
      Core core(cluster, {.parameters = {{a, "a", 0}, {b, "b", 1}}}, {.strategy = strategy, .local_steps = 3});
      EXPECT_EQ(core.trained().size(), 2U);
      for (int step = 0; step < 40; ++step) {
        // Every worker pulls elsewhere; their mean is 2.
        ((a - (1 + cluster.rank())).square().sum() + (b - (1 + cluster.rank())).square().sum()).backward();
        if (core.begin_step({0.05, 0.1})) {
          for (const TrainedTensor& t : core.trained()) descend({t}, t.group == 0 ? 0.05 : 0.1);
        }
        core.end_step({0.05, 0.1});
      }
      core.finish();
      EXPECT_EQ(core.steps(), 40);
      ends[static_cast<std::size_t>(cluster.rank())] = a.mean().item<double>() + b.mean().item<double>();
    });
    if (strategy == Strategy::kNone) continue;
    EXPECT_NEAR(ends[0], 4, 0.4) << name(strategy);
    EXPECT_EQ(ends[0], ends[1]) << name(strategy);
    EXPECT_EQ(ends[0], ends[2]) << name(strategy);
  }
}

TEST(Core, TellsWhichElementsAShardHas) {
  run_workers(2, [](const Cluster& cluster) {
    const at::Tensor a = leaf({40}, 1), b = leaf({3, 33}, 2), c = leaf({5}, 3);
    Core core(cluster, {.parameters = {{a, "a", 0}, {b, "b", 0, 1}, {c, "c", 1}}},
              {.strategy = Strategy::kDdp, .zero = 1});
    const auto other = cluster.communicator("test");
    const at::Tensor seen = at::zeros({40 + 99 + 5});
    const std::vector<std::int64_t> begins{0, 40, 139};
    for (const TrainedTensor& t : core.trained()) {
      for (const auto& [parameter, begin, size, at] : t.pieces) {
        EXPECT_EQ(t.group, parameter == 2 ? 1U : 0U);
        EXPECT_EQ(t.pieces.size(), 1U);  // kinds, and groups, do not share tensors here
        EXPECT_TRUE(t.tensor.narrow(0, at, size).equal(at::full({size}, 1.F + static_cast<float>(parameter))));
        seen.narrow(0, begins[parameter] + begin, size).add_(1);
      }
    }
    other->all_reduce(seen, ReduceOp::kSum)->wait();
    EXPECT_TRUE(seen.equal(at::ones_like(seen)));
  });
}

TEST(Core, CanBeMoved) {
  run_workers(2, [](const Cluster& cluster) {
    const at::Tensor a = leaf({20});
    std::vector<Core> cores;
    for (int i = 0; i < 1; ++i)
      cores.emplace_back(cluster, TrainedModel{.parameters = {{a, "a"}}}, Options{.local_steps = 2});
    Core core = std::move(cores.front());
    for (int step = 0; step < 5; ++step) {
      (a * (1 + cluster.rank())).sum().backward();
      if (core.begin_step({0.1})) descend(core.trained(), 0.1);
      core.end_step({0.1});
    }
    core.finish();
    EXPECT_NEAR(a[0].item<double>(), -0.75, 1e-5);
  });
}

TEST(Core, SettlesWithoutApplying) {
  run_workers(2, [](const Cluster& cluster) {
    const at::Tensor a = leaf({20});
    Core core(cluster, {.parameters = {{a, "a"}}}, {.local_steps = 2, .fragments = 1});
    for (int step = 0; step < 2; ++step) {
      (a * (1 + cluster.rank())).sum().backward();
      if (core.begin_step({0.1})) descend(core.trained(), 0.1);
      core.end_step({0.1});
    }
    const at::Tensor live = core.live().clone();
    core.settle();
    EXPECT_TRUE(core.live().equal(live));
    EXPECT_TRUE(core.consensus().equal(at::zeros_like(core.consensus())));
    core.finish();
    EXPECT_NEAR(a[0].item<double>(), -0.3, 1e-5);
  });
}

std::string refusal(TrainedModel model, const Options& options = {}) {
  try {
    const Core core(Cluster::alone(), std::move(model), options);
  } catch (const OptionError& error) {
    return error.what();
  }
  return "";
}

TEST(Core, RefusesWhatItCantTrain) {
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const at::Tensor a = leaf({3});
  EXPECT_TRUE(contains(refusal({}), "no parameter"));
  EXPECT_TRUE(contains(refusal({.parameters = {{at::Tensor(), "x"}}}), "x is no tensor"));
  EXPECT_TRUE(contains(refusal({.parameters = {{a, ""}}}), "no name"));
  EXPECT_TRUE(contains(refusal({.parameters = {{a, "x"}, {leaf({1}), "x"}}}), "two parameters have the name x"));
  EXPECT_TRUE(contains(refusal({.parameters = {{a, "x"}, {a, "y"}}}), "x and y are tied"));
  const at::Tensor whole = at::ones({8});
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return whole.slice(0, begin, end).detach().requires_grad_();
  };
  EXPECT_TRUE(
      contains(refusal({.parameters = {{part(3, 8), "x"}, {part(0, 5), "y"}}}), "y and x share some memory"));
  EXPECT_EQ(refusal({.parameters = {{part(5, 8), "x"}, {part(0, 5), "y"}}}), "");
  EXPECT_TRUE(contains(refusal({.parameters = {{at::ones({2}), "x"}}}), "requires no gradient"));
  EXPECT_TRUE(contains(refusal({.parameters = {{a * 2, "x"}}}), "no leaf"));
  EXPECT_TRUE(contains(refusal({.parameters = {{at::ones({2}, at::kLong), "x"}}}), "floating-point"));
  EXPECT_TRUE(
      contains(refusal({.parameters = {{a, "x"}, {at::ones({2}, at::kDouble).requires_grad_(), "y"}}}), "dtype"));
  const at::Tensor nowhere = at::empty({2}, at::TensorOptions().device(at::kMeta)).requires_grad_();
  EXPECT_TRUE(contains(refusal({.parameters = {{nowhere, "x"}}}), "x is on the meta device"));
  EXPECT_TRUE(contains(refusal({.parameters = {{a, "x"}}, .units = {{{7}, [](auto) {}}}}), "a unit names parameter 7"));
  EXPECT_TRUE(contains(refusal({.parameters = {{a, "x"}}, .units = {{{0}, nullptr}}}), "no function"));
  EXPECT_TRUE(contains(refusal({.parameters = {{a, "x", static_cast<std::size_t>(-1)}}}), "counted from 0"));
  EXPECT_TRUE(contains(refusal({.parameters = {{a, "x"}}, .buffers = {{"b", at::ones({1})}, {"b", at::ones({1})}}}),
                       "two buffers have the name b"));
  EXPECT_EQ(refusal({.parameters = {{a, "x"}}}), "");
}

/// Groups for another device than the model's.
class Elsewhere final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string backend() const override { return "c10d/elsewhere"; }
  bool carries(c10::DeviceType) const override { return false; }
  WorkPtr all_reduce(const at::Tensor&, ReduceOp) override { return never(); }
  WorkPtr broadcast(const at::Tensor&, int) override { return never(); }
  WorkPtr all_gather(const at::Tensor&, const at::Tensor&) override { return never(); }
  WorkPtr reduce_scatter(const at::Tensor&, const at::Tensor&, ReduceOp) override { return never(); }
  WorkPtr all_to_all(const at::Tensor&, const at::Tensor&) override { return never(); }
  WorkPtr barrier() override { return never(); }
  std::int64_t all_reduce_wire_bytes(std::int64_t bytes) const override { return bytes; }
  std::int64_t reduce_scatter_scratch_bytes(std::int64_t) const override { return 0; }

 private:
  static WorkPtr never() { throw std::logic_error("nothing may travel"); }
};

TEST(Core, RefusesADeviceThatTheGroupsDoNotCarry) {
  GivenGroups groups;
  groups.make = [](const std::string&, const std::vector<int>&, int, Carries) { return std::make_shared<Elsewhere>(); };
  const Cluster cluster = Cluster::over(groups);
  EXPECT_EQ(cluster.launcher(), "given");
  const at::Tensor a = leaf({3}, 2);
  try {
    const Core core(cluster, {.parameters = {{a, "a"}}});
    ADD_FAILURE();
  } catch (const OptionError& error) {
    EXPECT_NE(std::string(error.what()).find("parameters are on cpu"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("c10d/elsewhere"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(a.equal(at::full({3}, 2.F)));
  groups.rank = 1;
  EXPECT_THROW(Cluster::over(groups), OptionError);
  groups = {};
  EXPECT_THROW(Cluster::over(groups), OptionError);
  groups.make = [](const std::string&, const std::vector<int>&, int, Carries) { return nullptr; };
  EXPECT_THROW(Cluster::over(groups).communicator("any"), ClusterError);
}

TEST(Core, ChecksRates) {
  const at::Tensor a = leaf({3});
  Core core(Cluster::alone(), {.parameters = {{a, "a", 1}}}, {.local_steps = 2});
  EXPECT_THROW(core.begin_step({}), OptionError);
  EXPECT_THROW(core.begin_step({0.1}), OptionError);  // two groups, of which the first is empty
  EXPECT_THROW(core.begin_step({0.1, -1}), OptionError);
  EXPECT_THROW(core.begin_step({0.1, std::nan("")}), OptionError);
  EXPECT_THROW(core.begin_step({0.1, std::numeric_limits<double>::infinity()}), OptionError);
  EXPECT_TRUE(core.begin_step({0.1, 0.1}));
  EXPECT_THROW(core.begin_step({0.1, 0.1}), OptionError);
  EXPECT_THROW(core.finish(), OptionError);
  EXPECT_THROW(core.discard_gradients(), OptionError);
  core.cancel_step();
  EXPECT_THROW(core.end_step({0.1, 0.1}), OptionError);
  EXPECT_EQ(core.steps(), 0);
  EXPECT_TRUE(core.begin_step({0.1, 0.1}));
  EXPECT_THROW(core.end_step({0.1}), OptionError);
  EXPECT_NO_THROW(core.end_step({0.1, 0}));
  EXPECT_EQ(core.steps(), 1);
}

TEST(Core, ShowsItsOptionsFilledIn) {
  const at::Tensor a = leaf({3});
  const Core core(Cluster::alone(), {.parameters = {{a, "a"}}}, {.strategy = Strategy::kSlowMo, .local_steps = 5});
  EXPECT_EQ(core.options().momentum, 0.5);
  EXPECT_EQ(core.options().delay, 0);
  EXPECT_EQ(core.options().local_steps, 5);
  EXPECT_EQ(core.pace().local_steps, 5);
}

/// A device whose tensors nobody can look at: whoever tries throws.
TEST(Core, NothingIsLookedAtInTheApplyPass) {
  const auto tensor = [] { return at::empty({100}, at::TensorOptions().device(at::kMeta)); };
  EXPECT_THROW(tensor().sum().item<double>(), c10::Error);
  const at::Tensor sum = tensor(), momentum = tensor(), consensus = tensor(), sent = tensor(), live = tensor();
  for (const Restart restart : {Restart::kPaper, Restart::kKeep, Restart::kMix}) {
    outer::Move move;
    move.momentum = 0.3;
    move.restart = restart;
    move.mix = 0.5;
    EXPECT_NO_THROW(outer::apply(sum, momentum, consensus, sent, live, move, /*want_norm=*/false));
  }
  EXPECT_FALSE(outer::is_rounding(consensus, live, momentum, 0.1));
}

TEST(Core, KnowsWhatNobodyTrains) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor consensus = at::full({64}, 3, dtype);
    const at::Tensor momentum = at::ones({64}, dtype);
    for (const double progress : {0.0, 1e-7, 1e-2}) {
      const at::Tensor live = consensus.clone();
      live[63] -= progress;
      EXPECT_EQ(outer::is_rounding(consensus, live, momentum, 0.1), progress < 1e-3);
      EXPECT_EQ(outer::with_operators::is_rounding(consensus, live, momentum, 0.1), progress < 1e-3);
    }
  }
}

}  // namespace
}  // namespace co2
