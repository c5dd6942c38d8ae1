// Parameters that have rested begin to move. For the clip that is ordinary progress, however many or large they are
// beside those that moved before; and a burst is still one.
#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;

constexpr double kRate = 1e-3;

/// A head and a body that move by so many times their rate in a step; one group, or one each.
struct Model {
  std::int64_t head = 50;
  std::int64_t body = 20000;
  bool groups = true;
};
using Moves = std::function<double(int rank, int step, bool body)>;

struct End {
  double head, body;  ///< how many times the rate they went
  Clipping clipping;
};

End run(const Model& model, const Options& options, int steps, const Moves& moves, int workers = 2) {
  End end;
  run_workers(workers, [&](const Cluster& cluster) {
    at::Tensor head = at::zeros({model.head}).set_requires_grad(true);
    at::Tensor body = at::zeros({model.body}).set_requires_grad(true);
    Core core(cluster, {.parameters = {{head, "head", 0}, {body, "body", model.groups ? 1U : 0U}}}, options);
    for (int step = 1; step <= steps; ++step) {
      const double of_body = moves(cluster.rank(), step, true);
      std::vector<double> rates{kRate};
      if (model.groups) rates.push_back(of_body == 0 ? 0 : kRate);
      core.begin_step(rates);
      {
        const at::NoGradGuard no_grad;
        head.sub_(kRate * moves(cluster.rank(), step, false));
        body.sub_(kRate * of_body);
      }
      core.end_step(rates);
    }
    core.finish();
    if (cluster.rank() == 0) {
      end = {-head.mean().item<double>() / kRate, -body.mean().item<double>() / kRate, core.clipping()};
    }
  });
  return end;
}

Moves unfrozen_after(int frozen, double strength) {
  return [=](int, int step, bool body) { return !body ? 1.0 : step <= frozen ? 0.0 : strength; };
}

TEST(Unfreezing, IsNoBurst) {
  for (const Strategy strategy : {Strategy::kCo2, Strategy::kCo2Paper}) {
    for (const Wire wire : {Wire::kPlain, Wire::kBfloat16, Wire::kInt4}) {
      if (strategy == Strategy::kCo2Paper && wire == Wire::kInt4) continue;  // refused
      for (const bool groups : {false, true}) {
        // Many elements, and few that are far stronger.
        for (const auto& [head, body, strength] : {std::tuple{50, 20000, 1.0}, {50, 20000, 100.0}, {20000, 50, 1e4}}) {
          for (const int frozen : {120, 125}) {
            const Options options{
                .strategy = strategy, .local_steps = 12, .fragments = 1, .momentum = 0, .penalty = false, .wire = wire};
            const End end = run({head, body, groups}, options, 300, unfrozen_after(frozen, strength));
            const auto what = testing::Message() << name(strategy) << " " << name(wire) << ", groups " << groups << ", "
                                                 << body << " elements after " << frozen << ", strength " << strength;
            EXPECT_EQ(end.clipping.clipped, 0) << what;
            EXPECT_GT(end.clipping.exchanges, 20) << what;
            EXPECT_NEAR(end.head, 300, wire == Wire::kPlain ? 0.01 : 1) << what;
            EXPECT_NEAR(end.body / strength, 300 - frozen, wire == Wire::kPlain ? 0.01 : 1) << what;
          }
        }
      }
    }
  }
}

TEST(Unfreezing, IsNoBurstWithMomentumNorMixedNorInIslands) {
  const auto clipped = [](const Options& options, int workers) {
    return run({}, options, 300, unfrozen_after(120, 100), workers).clipping.clipped;
  };
  EXPECT_EQ(clipped({.local_steps = 12, .fragments = 1, .momentum = 0.5}, 2), 0);
  EXPECT_EQ(clipped({.local_steps = 12, .fragments = 3, .momentum = 0.3}, 2), 0);
  for (const int zero : {0, 1}) {
    EXPECT_EQ(clipped({.local_steps = 12, .fragments = 1, .momentum = 0.3, .island_size = 2, .zero = zero}, 4), 0) << zero;
  }
}

/// What rounding left of a time of higher rates is larger than all that comes after it: nobody can tell how large that
/// is, nor that it is a burst.
TEST(Unfreezing, IsNoBurstBesideWhatRoundingLeftOfHigherRates) {
  for (const Wire wire : {Wire::kPlain, Wire::kBfloat16, Wire::kInt8, Wire::kInt4, Wire::kInt2}) {
    for (const auto& [low, strength] : {std::pair{1e-2, 1000.0}, {1e-2, 30.0}, {1e-4, 30.0}}) {
      run_workers(2, [&](const Cluster& cluster) {
        at::Tensor head = at::zeros({64}).set_requires_grad(true);
        at::Tensor body = at::zeros({640}).set_requires_grad(true);
        Core core(cluster, {.parameters = {{head, "head", 0}, {body, "body", 0}}},
                  {.local_steps = 4, .momentum = 0, .wire = wire});
        auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(7 + cluster.rank()));
        const at::NoGradGuard no_grad;
        for (int step = 1; step <= 160; ++step) {
          const double rate = kRate * (step > 40 && step <= 96 ? low : 1);
          core.begin_step({rate});
          head.sub_(rate * (1 + at::randn({64}, random)));
          if (step > 40) body.sub_(rate * strength * (1 + at::randn({640}, random)));
          core.end_step({rate});
        }
        core.finish();
        EXPECT_EQ(core.clipping().clipped, 0) << name(wire) << " " << low << " " << strength;
      });
    }
  }
}

/// What is mixed with itself is no longer itself, in the last bits: still nobody has moved it.
TEST(Unfreezing, IsNoBurstOfWhatWasMixed) {
  run_workers(2, [&](const Cluster& cluster) {
    at::Tensor head = at::full({50}, 0.7).set_requires_grad(true);
    at::Tensor body = at::full({20000}, 0.7).set_requires_grad(true);
    Core core(cluster, {.parameters = {{head, "head", 0}, {body, "body", 0}}},
              {.local_steps = 4, .fragments = 1, .restart = Restart::kMix, .mix = 0.3, .wire = Wire::kPlain});
    for (int step = 1; step <= 300; ++step) {
      core.begin_step({kRate});
      {
        const at::NoGradGuard no_grad;
        head.sub_(kRate);
        if (step > 150) body.sub_(kRate);
      }
      core.end_step({kRate});
    }
    EXPECT_EQ(core.clipping().clipped, 0);
  });
}

/// By then it is long forgotten what was usual for it.
TEST(Unfreezing, IsNoBurstAfterAnyRest) {
  for (const Wire wire : {Wire::kPlain, Wire::kInt4}) {
    const auto moves = [](int, int step, bool body) { return !body ? 1.0 : step > 100 && step <= 4100 ? 0.0 : 1.0; };
    const Options options{.local_steps = 1, .fragments = 1, .wire = wire};
    const End end = run({64, 2000}, options, 4200, moves);
    EXPECT_EQ(end.clipping.clipped, 0) << name(wire);
    EXPECT_NEAR(end.body, 200, 1) << name(wire);
  }
}

TEST(Unfreezing, LeavesABurstABurst) {
  const auto with_burst = [](int at, bool of_body, double strength) -> Moves {
    return [=](int rank, int step, bool body) {
      const bool bursts = rank == 1 && step == at && body == of_body;
      return unfrozen_after(120, strength)(rank, step, body) * (bursts ? 1e3 : 1.0);
    };
  };
  const Options options{.local_steps = 12, .fragments = 1, .momentum = 0, .wire = Wire::kPlain};
  for (const bool groups : {false, true}) {
    const Model equals{1000, 1000, groups};
    for (const int at : {60, 126, 138, 200}) {  // before, while and after the body is new
      EXPECT_EQ(run(equals, options, 300, with_burst(at, false, 1)).clipping.clipped, 1) << "of the head at " << at;
    }
    EXPECT_EQ(run({50, 20000, groups}, options, 300, with_burst(200, true, 100)).clipping.clipped, 1) << "of the body";
  }
}

}  // namespace
}  // namespace co2
