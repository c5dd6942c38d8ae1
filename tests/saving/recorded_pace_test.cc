// Automatic rounds depend on measured times. With times that are recorded, a run that goes on from a checkpoint plans
// the same rounds as one that was never stopped, and ends with the same bits.

#include <co2/checkpoint.h>
#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "support/passing_on.h"
#include "support/temporary.h"
#include "support/unit_model.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;
using test::unit_batch;
using test::UnitModel;

constexpr int kSteps = 40;

/// What was measured in a round: a step, minus a transfer, a cost. Links that get slow, very slow, and quick again, so
/// that rounds, fragments and wires change.
const std::vector<std::array<double, 3>> kRecorded = {
    {1.0, -0.5, 0.001}, {1.0, -1.0, 0.001}, {1.0, -3.0, 0.001}, {1.0, -6.0, 0.001}, {1.0, -6.0, 0.001},
    {1.0, -6.0, 0.001}, {1.0, -0.2, 0.001}, {1.0, -0.2, 0.001}, {1.0, -0.2, 0.001}, {1.0, -2.5, 0.001},
};

/// Puts recorded times in the place of measured ones, which are told by three numbers of which the largest counts.
class Recorded : public test::PassingOn {
 public:
  Recorded(std::shared_ptr<Communicator> real, std::shared_ptr<int> rounds)
      : PassingOn(std::move(real)), rounds_(std::move(rounds)) {}
  WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    if (tensor.numel() == 3 && tensor.scalar_type() == at::kDouble && op == ReduceOp::kMax) {
      const auto& times = kRecorded[static_cast<std::size_t>((*rounds_)++) % kRecorded.size()];
      std::copy(times.begin(), times.end(), tensor.data_ptr<double>());
    }
    return PassingOn::all_reduce(tensor, op);
  }

 private:
  std::shared_ptr<int> rounds_;
};

/// `rounds`: how many of the recorded times this worker has used; counted on.
Cluster with_recorded_times(const Cluster& real, const std::shared_ptr<int>& rounds) {
  return Cluster::over(
      {.rank = real.rank(),
       .size = real.size(),
       .local_rank = real.rank(),
       .local_size = real.size(),
       .make = [real, rounds](const std::string& name, const std::vector<int>& ranks, int, Carries what) {
         return std::make_shared<Recorded>(real.communicator(name, ranks, what), rounds);
       }});
}

struct Seen {
  std::vector<Pace> paces;       ///< after every step
  std::vector<int> rounds_told;  ///< recorded times that were used by then
  at::Tensor model;
};

/// Saves after every step; with `from`, goes on after that step instead.
std::vector<Seen> train(const std::filesystem::path& folder, const Options& options, int workers,
                        const std::vector<Seen>& before = {}, int from = 0) {
  std::vector<Seen> seen(static_cast<std::size_t>(workers));
  run_workers(workers, [&](const Cluster& real) {
    const auto rank = static_cast<std::size_t>(real.rank());
    const auto rounds = std::make_shared<int>(0);
    const Cluster cluster = with_recorded_times(real, rounds);
    UnitModel model(3);
    if (from > 0) {
      const at::NoGradGuard no_grad;
      for (const at::Tensor& p : model.parameters()) p.fill_(7);
    }
    torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.01));
    Synchronizer sync(cluster, model, optimizer, options);
    Saver saver(cluster, folder, {.keep = kSteps});
    std::int64_t step = 0;
    const auto mine = [&](StateVisitor& visitor) { visitor.number("step", step); };
    if (from > 0) {
      ASSERT_EQ(saver.restore(sync, mine), from);
      *rounds = before[rank].rounds_told[static_cast<std::size_t>(from) - 1];
    }
    while (step < kSteps) {
      optimizer.zero_grad();
      model.loss(unit_batch(static_cast<int>(step), 0, cluster.rank())).backward();
      sync.step();
      ++step;
      if (from == 0) saver.save(sync, mine);
      seen[rank].paces.push_back(sync.pace());
      seen[rank].rounds_told.push_back(*rounds);
    }
    saver.wait();
    sync.finish();
    seen[rank].model = model.flat_copy();
  });
  return seen;
}

TEST(RecordedPace, ARunGoesOnToTheSameRoundsAndBitsFromEveryStep) {
  const std::vector<std::pair<Options, int>> cases = {
      {{}, 2},
      {{.max_local_steps = 6, .momentum = 0.3}, 3},
      {{.island_size = 2, .zero = 3}, 4},
      {{.strategy = Strategy::kStreamingDiLoCo, .local_steps = kAuto}, 2},
  };
  for (const auto& [options, workers] : cases) {
    const test::TestFolder folder;
    const std::vector<Seen> whole = train(folder / "run", options, workers);
    std::set<std::pair<int, Wire>> plans;
    for (const Pace& pace : whole[0].paces) plans.emplace(pace.local_steps, pace.wire);
    EXPECT_GT(plans.size(), 2U) << "the recorded times change something";
    for (int step = kSteps - 1; step >= 1; --step) {
      char name[32];
      std::snprintf(name, sizeof(name), "step-%012d", step + 1);
      std::filesystem::remove_all(folder / "run" / "checkpoints" / name);
      const std::vector<Seen> again = train(folder / "run", options, workers, whole, step);
      for (std::size_t rank = 0; rank < again.size(); ++rank) {
        ASSERT_TRUE(again[rank].model.defined());
        EXPECT_TRUE(again[rank].model.equal(whole[rank].model)) << co2::name(options.strategy) << ", after " << step;
        for (std::size_t i = 0; i < again[rank].paces.size(); ++i) {
          const std::size_t at = static_cast<std::size_t>(step) + i;
          EXPECT_EQ(again[rank].paces[i].local_steps, whole[rank].paces[at].local_steps) << step << " " << at;
          EXPECT_EQ(again[rank].paces[i].fragments, whole[rank].paces[at].fragments) << step << " " << at;
          EXPECT_EQ(again[rank].paces[i].wire, whole[rank].paces[at].wire) << step << " " << at;
        }
      }
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace co2
