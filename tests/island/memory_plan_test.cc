// What the plan says against what a run has held.

#include "island/memory_plan.h"

#include <co2/checkpoint.h>
#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "island/placed.h"
#include "options/recipe.h"
#include "support/temporary.h"
#include "support/workers.h"
#include "train/gpt/gpt.h"
#include "train/gpt/gpt_shape.h"

namespace co2 {
namespace {

using test::run_workers;

constexpr train::GptConfig kModel{.layers = 4, .heads = 2, .width = 64, .context = 16};

TEST(MemoryPlan, KnowsTheModelsParameters) {
  for (const char* preset : {"nano", "tiny", "mini"}) {
    const train::GptConfig config = train::gpt_preset(preset, 0);
    train::Gpt model(config, 1);
    const ModelShape shape = train::gpt_shape(config);
    const auto parameters = model.parameters();
    ASSERT_EQ(shape.parameters.size(), parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      ASSERT_EQ(shape.parameters[i].elements, parameters[i].numel()) << preset << " " << i;
    }
    EXPECT_EQ(shape.elements(), train::parameter_count(config));
  }
}

MemoryUse measured(int workers, const Options& options) {
  MemoryUse use;
  const test::TestFolder folder;
  run_workers(workers, [&](const Cluster& cluster) {
    train::Gpt model(kModel, 1);
    torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3));
    Synchronizer sync(cluster, model, optimizer, options);
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      for (int pass = 0; pass < options.accumulation_steps; ++pass) {
        const at::Tensor tokens = at::randint(256, {2, 16}, at::kLong);
        model.loss(tokens, tokens).backward();
      }
      sync.step();
    }
    if (cluster.rank() == 0) use = sync.memory();
    Saver saver(cluster, folder / "run");
    saver.save(sync);
    saver.wait();
    if (cluster.rank() == 0) use.checkpoint = saver.reports().at(0).bytes;
    sync.finish();
  });
  return use;
}

TEST(MemoryPlan, AgreesWithWhatARunHolds) {
  const ModelShape shape = train::gpt_shape(kModel);
  // Rows and units are padded to lines and shares, in a model as small as this; messages carry weights.
  const double constant = 20'000;
  for (const Strategy strategy : {Strategy::kDdp, Strategy::kCo2, Strategy::kCo2Paper, Strategy::kSlowMo}) {
    for (const int accumulation : {1, 2}) {
      if (accumulation > 1 && strategy != Strategy::kCo2) continue;  // inside an island all strategies are the same
      for (const int stage : {0, 1, 2, 3}) {
        for (const Compute compute : {Compute::kPlain, Compute::kBfloat16}) {
          if (compute == Compute::kBfloat16 && stage == 0) continue;
          Options options{.strategy = strategy,
                          .accumulation_steps = accumulation,
                          .bucket_bytes = 100'000,
                          .island_size = strategy == Strategy::kDdp ? 1 : 2,
                          .zero = stage,
                          .compute = compute};
          if (strategy != Strategy::kDdp) options.local_steps = 2;
          SCOPED_TRACE(std::string(name(strategy)) + ", stage " + std::to_string(stage) + ", accumulation " +
                       std::to_string(accumulation) + ", " + std::string(name(compute)));
          const MemoryUse plan = plan_memory(shape, placed(resolve(options), 4), 2, 4);
          const MemoryUse use = measured(4, options);
          const auto agree = [&](std::int64_t held, std::int64_t planned) {
            EXPECT_NEAR(static_cast<double>(held), static_cast<double>(planned),
                        0.05 * static_cast<double>(planned) + constant);
          };
          agree(use.parameters, plan.parameters);
          agree(use.gradients, plan.gradients);
          agree(use.inner_state, plan.inner_state);
          agree(use.outer_state, plan.outer_state);
          agree(use.checkpoint, plan_checkpoint(shape, placed(resolve(options), 4), 2, 4));
          // Threads of one process need no space to receive into.
          if (stage == 0) agree(use.communication, plan.communication);
        }
      }
    }
  }
}

TEST(Placed, AnIslandOnItsOwnSendsNoBlocks) {
  for (const int workers : {1, 2, 4}) {
    const Recipe alone = placed(resolve({.wire = Wire::kInt4, .island_size = workers}), workers);
    EXPECT_EQ(alone.wire, Wire::kPlain) << workers;
    EXPECT_EQ(placed(resolve({.wire = Wire::kInt4, .island_size = workers}), 2 * workers).wire, Wire::kInt4);
    EXPECT_FALSE(placed(resolve({.island_size = workers}), workers).adaptive_wire);
  }
}

TEST(MemoryPlan, DividesByTheIsland) {
  const ModelShape shape = train::gpt_shape(train::gpt_preset("small", 0));
  const auto plan = [&](int workers, int island, int stage) {
    const Options options{.strategy = Strategy::kCo2, .local_steps = 12, .island_size = island, .zero = stage};
    return plan_memory(shape, placed(resolve(options), workers), 2, workers);
  };
  EXPECT_EQ(plan(8, 1, 0).outer_state / 4, plan(8, 4, 0).outer_state);
  EXPECT_EQ(plan(8, 4, 0).inner_state / 4, plan(8, 4, 1).inner_state);
  EXPECT_LT(plan(8, 4, 2).gradients, plan(8, 4, 1).gradients);
  EXPECT_LT(static_cast<double>(plan(8, 4, 3).parameters), 0.4 * static_cast<double>(plan(8, 4, 0).parameters));
}

}  // namespace
}  // namespace co2
