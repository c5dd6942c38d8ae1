// Bursts on wires that round: what rounding leaves of one must not arrive later instead.
#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;

constexpr double kRate = 0.01;

struct Burst {
  int step = 0;
  double times = 1;
  bool of_all = true;  ///< or of the first worker alone
};

struct End {
  at::Tensor parameters;
  Clipping clipping;
};

/// Noisy gradients that agree on a direction, and now and then a burst.
End run(const Options& options, const std::vector<Burst>& bursts) {
  End end;
  run_workers(2, [&](const Cluster& cluster) {
    at::Tensor parameter = at::zeros({640}).set_requires_grad(true);
    Core core(cluster, {.parameters = {{parameter, "p", 0}}}, options);
    auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(3 + cluster.rank()));
    const at::NoGradGuard no_grad;
    for (int step = 1; step <= 300; ++step) {
      at::Tensor gradient = 1 + at::randn({640}, random);
      for (const Burst& burst : bursts) {
        if (step == burst.step && (burst.of_all || cluster.rank() == 0)) gradient.mul_(burst.times);
      }
      core.begin_step({kRate});
      parameter.sub_(kRate * gradient);
      core.end_step({kRate});
    }
    core.finish();
    if (cluster.rank() == 0) end = {parameter.clone(), core.clipping()};
  });
  return end;
}

double root_mean_square(const at::Tensor& values) { return values.square().mean().sqrt().item<double>(); }

constexpr Wire kWires[] = {Wire::kPlain, Wire::kBfloat16, Wire::kInt8, Wire::kInt4, Wire::kInt2};

TEST(Burst, LeavesNothingBehindThatArrivesLater) {
  for (const double momentum : {0.0, 0.3}) {
    for (const bool of_all : {true, false}) {
      double on_plain = 0;
      for (const Wire wire : kWires) {
        const Options options{.local_steps = 4, .momentum = momentum, .wire = wire};
        const End with = run(options, {{120, 1e4, of_all}});
        const double change = root_mean_square(with.parameters - run(options, {}).parameters);
        if (wire == Wire::kPlain) on_plain = change;
        // Whatever the bits: about as much as without rounding, where each of the four fragments is clipped once. All
        // of it would be 140, or 70 of one worker.
        EXPECT_LT(change, 3 * on_plain + 0.1) << name(wire) << " " << momentum << " " << of_all;
        EXPECT_LE(with.clipping.clipped, 8) << name(wire) << " " << momentum << " " << of_all;
        EXPECT_GE(with.clipping.clipped, 4) << name(wire) << " " << momentum << " " << of_all;
      }
    }
  }
}

TEST(Burst, IsNoticedAfterAnother) {
  for (const Wire wire : kWires) {
    const Options options{.local_steps = 4, .momentum = 0, .wire = wire};
    const auto first = run(options, {{120, 1e4}}).clipping.clipped;
    EXPECT_GE(run(options, {{120, 1e4}, {200, 300}}).clipping.clipped, first + 4) << name(wire);
  }
}

}  // namespace
}  // namespace co2
