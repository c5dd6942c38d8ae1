// One test against each defect of earlier implementations (docs/algorithm.md, "Known defects") that can be shown with
// workers as threads. tests/defects puts each defect into a copy of the sources and checks that its test here fails.
#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/gate.h"
#include "support/toy.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::Gate;
using test::plain_sgd;
using test::run_workers;
using test::Toy;

// Defect 1: clipping computed out of place and thrown away.
TEST(Defect1, TheMomentumIsReallyClipped) {
  for (const ClipMode mode : {ClipMode::kValue, ClipMode::kNorm}) {
    run_workers(2, [&](const Cluster& cluster) {
      Toy toy({16});
      auto optimizer = plain_sgd(toy, 0.5);
      const Options options{
          .strategy = Strategy::kSlowMo, .local_steps = 2, .momentum = 0.5, .clip = 0.25, .clip_mode = mode};
      Synchronizer sync(cluster, toy, optimizer, options);
      for (int step = 0; step < 2; ++step) {
        toy.set_gradients(100);
        sync.step();
      }
      // Unclipped, m = D/γ = 200. Clipped by value every element moves by αγφ; by norm the whole fragment does.
      const double moved = mode == ClipMode::kValue ? 0.5 * 0.25 : 0.5 * 0.25 / 4;  // ‖16 equal elements‖ = 4 |element|
      EXPECT_TRUE(torch::allclose(sync.consensus(), torch::full({16}, -moved), 1e-6)) << sync.consensus();
    });
  }
}

// Defect 2: the penalty a constant instead of a computed gap. With SGD and constant gradients every number of the
// recursion is known: d = τγg per round; x_1 = x_0 (nothing to apply in round 0), the first apply has Λ = 1, and the
// next one Λ = 1 + ‖x_2 - x_1‖/‖D‖ = 1 + |αγm_1|/|d|.
TEST(Defect2, TheStalenessGapIsComputed) {
  for (const double outer_rate : {1.0, 0.5}) {
    run_workers(2, [&](const Cluster& cluster) {
      constexpr double kRate = 0.5;
      constexpr double kGradient = 2;
      constexpr int kSteps = 3;
      Toy toy({5});
      auto optimizer = plain_sgd(toy, kRate);
      Synchronizer sync(cluster, toy, optimizer,
                        {.strategy = Strategy::kCo2Paper,
                         .local_steps = kSteps,
                         .outer_rate = outer_rate,
                         .momentum = 0.25,
                         .clip = 0});
      const double d = kSteps * kRate * kGradient;
      double x = 0;
      double m = 0;
      double moved = 0;
      for (int round = 1; round <= 5; ++round) {
        for (int step = 0; step < kSteps; ++step) {
          toy.set_gradients(kGradient);
          sync.step();
        }
        if (round >= 2) {
          const double gap = 1 + moved / d;
          m = 0.25 * m + d / (gap * kRate);
          moved = outer_rate * kRate * m;
          x -= moved;
        }
        EXPECT_NEAR(sync.consensus()[0].item<double>(), x, 1e-5) << "round " << round;
      }
    });
  }
}

// Defect 3: the all-reduce running on the live parameters while they are being trained. The wire is held while the
// workers go on; what is averaged must be what they had at the launch.
TEST(Defect3, TheWireCarriesASnapshot) {
  Gate gate;
  run_workers(Cluster::in_process(2, gate.wire()), [&](const Cluster& cluster) {
    Toy toy({7});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(
        cluster, toy, optimizer,
        {.strategy = Strategy::kCo2, .local_steps = 4, .fragments = 1, .momentum = 0, .clip = 0, .wire = Wire::kPlain});
    auto barrier = cluster.communicator("test");
    barrier->barrier()->wait();
    gate.close();
    for (int step = 0; step < 7; ++step) {
      // 1 per step up to the launch at step 4; enormous afterwards, which would show in the average.
      toy.set_gradients(step < 4 ? 1 : 1000);
      sync.step();
    }
    gate.open();
    toy.set_gradients(1000);
    sync.step();
    EXPECT_FLOAT_EQ(sync.consensus()[0].item<float>(), -4);
    EXPECT_FLOAT_EQ(sync.live()[0].item<float>(), -4004);
  });
}

// Defect 4: an "overlapped" path that silently blocks. The gate opens only after all the steps between a launch and its
// apply have returned.
TEST(Defect4, NothingBlocksBetweenLaunchAndApply) {
  struct Case {
    Strategy strategy;
    std::optional<int> fragments;
    int free_steps;  // that must return although nothing gets through, counted from the start
  };
  // The first launch of P fragments is at τ/P and its apply at 2τ/P; of a whole model at τ and 2τ.
  for (const Case& c : {Case{Strategy::kCo2, 1, 11}, Case{Strategy::kCo2, 2, 5}, Case{Strategy::kCo2Paper, {}, 11},
                        Case{Strategy::kStreamingDiLoCo, 3, 3}, Case{Strategy::kOverlapLocalSgd, {}, 11}}) {
    Gate gate;
    run_workers(Cluster::in_process(2, gate.wire()), [&](const Cluster& cluster) {
      Toy toy({40, 40});
      auto optimizer = plain_sgd(toy, 0.1);
      Synchronizer sync(cluster, toy, optimizer, {.strategy = c.strategy, .local_steps = 6, .fragments = c.fragments});
      auto barrier = cluster.communicator("test");
      barrier->barrier()->wait();
      gate.close();
      for (int step = 0; step < c.free_steps; ++step) {
        toy.set_gradients(1);
        sync.step();
      }
      EXPECT_EQ(sync.trace().total().exposed_seconds, 0);
      gate.open();
      sync.finish();
    });
  }
}

// Defect 5: buckets that drop tensors. The smallest buckets, odd sizes; every element must have moved by the average.
TEST(Defect5, EveryElementIsExchanged) {
  for (const Strategy strategy : {Strategy::kLocalSgd, Strategy::kCo2, Strategy::kCo2Paper}) {
    run_workers(3, [&](const Cluster& cluster) {
      Toy toy({1023, 1, 3, 0, 1025, 257});
      auto optimizer = plain_sgd(toy, 1);
      Options options{
          .strategy = strategy, .local_steps = 3, .momentum = 0, .penalty = false, .clip = 0, .bucket_bytes = 1024};
      Synchronizer sync(cluster, toy, optimizer, options);
      for (int step = 0; step < 8; ++step) {
        toy.set_gradients(cluster.rank() == 0 ? 3 : 0);
        sync.step();
      }
      sync.finish();
      // Only rank 0 made progress, 3 per step: everybody ends with a third of it, everywhere.
      const float expected = -static_cast<float>(sync.steps());
      for (const at::Tensor& p : toy.parameter) {
        EXPECT_TRUE(torch::allclose(p, torch::full_like(p, expected), 1e-5)) << name(strategy);
      }
    });
  }
}

}  // namespace
}  // namespace co2
