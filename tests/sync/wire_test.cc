// What goes over the network: wire_format.h on real collectives, and whole exchanges with a wire of bfloat16.
#include <ATen/CPUGeneratorImpl.h>
#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "support/passing_on.h"
#include "support/toy.h"
#include "support/workers.h"
#include "sync/wire_format.h"

namespace co2 {
namespace {

using test::plain_sgd;
using test::run_workers;
using test::Toy;

constexpr std::int64_t kBucketBytes = 1024;

/// Remembers what went into the all-reduces.
class Recorder final : public test::PassingOn {
 public:
  using PassingOn::PassingOn;
  WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    dtypes.push_back(tensor.scalar_type());
    bytes += static_cast<std::int64_t>(tensor.nbytes());
    return PassingOn::all_reduce(tensor, op);
  }

  std::vector<at::ScalarType> dtypes;
  std::int64_t bytes = 0;
};

/// One exchange of one worker, from start to sum.
struct Exchange {
  std::shared_ptr<Recorder> network;
  Message message;
  at::Tensor sum;
  bool left_out = false;

  Exchange(const Cluster& cluster, Wire wire, const at::Tensor& progress, double weight)
      : network(std::make_shared<Recorder>(cluster.communicator("wire"))) {
    const auto format = make_summed_wire(wire, network, progress, kBucketBytes);
    const Range all{0, progress.numel()};
    message = format->allocate(progress.numel(), 1, true);
    left_out = format->start(message, {{all, progress, at::zeros_like(progress)}}, {.weight = weight}).left_out;
    for (const WorkPtr& work : message.works) work->wait();
    sum = format->sum(message, all).front().sum.data;
  }
};

at::Tensor random_progress(std::int64_t numel, int rank) {
  return at::randn({numel}, at::detail::createCPUGenerator(static_cast<std::uint64_t>(7 + rank)));
}

// Defect 10: a quantised path that falls back to full precision without a word.
TEST(Defect10, TheWireCarriesBfloat16) {
  constexpr int kWorkers = 3;
  constexpr std::int64_t kNumel = 5003;
  run_workers(kWorkers, [](const Cluster& cluster) {
    const Exchange half(cluster, Wire::kBfloat16, random_progress(kNumel, cluster.rank()), 2);
    const std::int64_t bytes = 2 * kNumel;
    EXPECT_EQ(half.network->bytes, bytes);
    EXPECT_EQ(half.network->dtypes.size(), static_cast<std::size_t>((bytes + kBucketBytes - 1) / kBucketBytes));
    for (const at::ScalarType dtype : half.network->dtypes) EXPECT_EQ(dtype, at::kBFloat16);
    EXPECT_EQ(half.message.bytes, half.network->all_reduce_wire_bytes(bytes));

    const Exchange plain(cluster, Wire::kPlain, random_progress(kNumel, cluster.rank()), 2);
    EXPECT_EQ(plain.network->bytes, 4 * kNumel);
  });
}

TEST(Bfloat16Wire, EverybodyHasTheSumOfWhatWasRounded) {
  constexpr int kWorkers = 3;
  const double weights[kWorkers] = {1200, 4097, 0.3};
  at::Tensor expected;
  for (int rank = 0; rank < kWorkers; ++rank) {
    const at::Tensor rounded = (random_progress(1025, rank) * weights[rank]).to(at::kBFloat16);
    expected = rank == 0 ? rounded : expected + rounded;  // rounded after each addition, in the order of ranks
  }
  run_workers(kWorkers, [&](const Cluster& cluster) {
    const double weight = weights[cluster.rank()];
    const at::Tensor progress = random_progress(1025, cluster.rank());
    const Exchange exchange(cluster, Wire::kBfloat16, progress, weight);
    EXPECT_EQ(exchange.sum.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(exchange.sum, expected));
    EXPECT_EQ(exchange.message.sent.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(exchange.message.sent, (progress * weight).to(at::kBFloat16).to(at::kFloat) / weight));
    EXPECT_FALSE(at::equal(exchange.message.sent, progress));
  });
}

TEST(Bfloat16Wire, WhoSitsOutSendsNothing) {
  run_workers(2, [](const Cluster& cluster) {
    const bool absent = cluster.rank() == 1;
    const at::Tensor progress = absent ? at::full({37}, std::numeric_limits<float>::infinity()) : at::ones({37});
    const Exchange exchange(cluster, Wire::kBfloat16, progress, absent ? 0 : 3);
    EXPECT_TRUE(at::equal(exchange.sum, at::full({37}, 3, at::kBFloat16)));
    EXPECT_TRUE(at::equal(exchange.message.sent, absent ? at::zeros({37}) : at::ones({37})));
  });
}

// What is not finite, or would not be once all is added up, is not sent: the others go on without this worker.
TEST(SummedWire, LeavesOutWhatCanNotBeAddedUp) {
  for (const Wire wire : {Wire::kPlain, Wire::kBfloat16}) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), -3e38f}) {
      run_workers(2, [&](const Cluster& cluster) {
        const at::Tensor progress = at::ones({37});
        if (cluster.rank() == 1) progress[36] = bad;
        const Exchange exchange(cluster, wire, progress, 2);
        EXPECT_EQ(exchange.left_out, cluster.rank() == 1) << name(wire) << " " << bad;
        EXPECT_TRUE(at::equal(exchange.sum.to(at::kFloat), at::full({37}, 2))) << name(wire) << " " << bad;
        EXPECT_TRUE(at::equal(exchange.message.sent, cluster.rank() == 1 ? at::zeros({37}) : at::ones({37})));
      });
    }
  }
}

TEST(Bfloat16Wire, NeedsWiderParameters) {
  const auto alone = Cluster::alone().communicator("wire");
  EXPECT_NO_THROW(make_summed_wire(Wire::kBfloat16, alone, at::zeros({1}), kBucketBytes));
  EXPECT_NO_THROW(make_summed_wire(Wire::kBfloat16, alone, at::zeros({1}, at::kDouble), kBucketBytes));
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    EXPECT_NO_THROW(make_summed_wire(Wire::kPlain, alone, at::zeros({1}, dtype), kBucketBytes));
    EXPECT_THROW(make_summed_wire(Wire::kBfloat16, alone, at::zeros({1}, dtype), kBucketBytes), OptionError);
  }
}

Options averaging(Restart restart) {
  return {.strategy = Strategy::kCo2,
          .local_steps = 1,
          .fragments = 1,
          .delay = 0,
          .momentum = 0,
          .penalty = false,
          .clip = 0,
          .restart = restart,
          .wire = Wire::kBfloat16};
}

// Progress of 1 + 2^-10 per round is sent as 1 (with a weight of 4097, a little less). With `keep` the rest adds up
// until it counts: at most a unit in the last place (2^-7) is behind at any time, and finish() collects it.
TEST(Bfloat16Wire, KeepSendsLaterWhatRoundingLeftBehind) {
  constexpr int kRounds = 64;
  constexpr double kProgress = 1 + 0x1p-10;
  for (const double weight : {4.0, 4097.0}) {
    run_workers(2, [&](const Cluster& cluster) {
      Toy toy({37});
      auto optimizer = plain_sgd(toy, 1);
      Synchronizer sync(cluster, toy, optimizer, averaging(Restart::kKeep));
      for (int round = 1; round <= kRounds; ++round) {
        toy.set_gradients(kProgress);
        sync.step(weight);
        EXPECT_NEAR(-sync.consensus()[0].item<double>(), round * kProgress, 0x1p-7) << "round " << round;
      }
      sync.finish();
      EXPECT_NEAR(-toy.parameter[0][36].item<double>(), kRounds * kProgress, 1e-4);  // of 64 in float32
    });
  }
}

// What rounding left at a high rate goes out at a low one, of one group while another goes on. It is neither a burst,
// nor anything that momentum should remember a multiple of.
TEST(Bfloat16Wire, WhatRoundingLeftKeepsTheUnitsOfItsTime) {
  constexpr int kTau = 12;
  const auto run = [](Wire wire, double low, double momentum, Clipping* clipping) {
    at::Tensor end;
    run_workers(2, [&](const Cluster& cluster) {
      at::Tensor slow = at::zeros({100}, at::kDouble).set_requires_grad(true);
      at::Tensor falls = at::zeros({70}, at::kDouble).set_requires_grad(true);
      const Options options{.local_steps = kTau, .fragments = 1, .momentum = momentum, .wire = wire};
      Core core(cluster, {.parameters = {{slow, "slow", 0}, {falls, "falls", 1}}}, options);
      const double own = 1 + 0.37 * cluster.rank();
      for (int step = 1; step <= 25 * kTau; ++step) {
        const double rate = step > 100 && step <= 200 ? 1e-2 * low : 1e-2;
        core.begin_step({1e-2, rate});
        {
          const at::NoGradGuard no_grad;
          slow.sub_(1e-2 * 0.003 * own);
          falls.sub_(rate * own);
        }
        core.end_step({1e-2, rate});
      }
      core.finish();
      if (cluster.rank() == 0) {
        end = at::stack({slow.detach().mean(), falls.detach().mean()});
        if (clipping != nullptr) *clipping = core.clipping();
      }
    });
    return end;
  };
  for (const double momentum : {0.0, 0.3, 0.9}) {
    for (const double low : {1e-3, 1e-5, 1e-7}) {
      const at::Tensor plain = run(Wire::kPlain, low, momentum, nullptr);
      Clipping clipping;
      const at::Tensor end = run(Wire::kBfloat16, low, momentum, &clipping);
      EXPECT_EQ(clipping.clipped, 0) << "rate times " << low << ", momentum " << momentum;
      EXPECT_TRUE(at::allclose(end, plain, 1e-2))
          << "rate times " << low << ", momentum " << momentum << ": " << end << " " << plain;
    }
  }
}

// The others restart from the consensus: docs/algorithm.md says that they lose it.
TEST(Bfloat16Wire, PaperLosesWhatRoundingLeftBehind) {
  run_workers(2, [&](const Cluster& cluster) {
    Toy toy({37});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, averaging(Restart::kPaper));
    for (int round = 1; round <= 64; ++round) {
      toy.set_gradients(1 + 0x1p-10);
      sync.step(4);
    }
    sync.finish();
    EXPECT_EQ(toy.parameter[0][36].item<float>(), -64);
  });
}

// End to end: the trace counts what the network carries, and workers with different progress agree bit for bit.
TEST(Bfloat16Wire, WorkersAgreeOnHalfTheBytes) {
  constexpr int kWorkers = 3;
  constexpr int kRounds = 5;
  at::Tensor consensus[kWorkers];
  std::int64_t bytes[kWorkers];
  run_workers(kWorkers, [&](const Cluster& cluster) {
    Toy toy({1008});
    auto optimizer = plain_sgd(toy, 0.1);
    Synchronizer sync(cluster, toy, optimizer, averaging(Restart::kKeep));
    for (int round = 0; round < kRounds; ++round) {
      toy.parameter[0].mutable_grad() = random_progress(1008, kWorkers * round + cluster.rank());
      sync.step(1 + cluster.rank());
    }
    consensus[cluster.rank()] = sync.consensus().clone();
    bytes[cluster.rank()] = sync.trace().total().bytes;
  });
  for (int rank = 0; rank < kWorkers; ++rank) {
    EXPECT_TRUE(at::equal(consensus[rank], consensus[0]));
    EXPECT_GT(consensus[rank].abs().max().item<float>(), 0);
    // And a header: weight, size, two numbers to check the consensus, and the rate of one group.
    EXPECT_EQ(bytes[rank],
              kRounds * (2 * 2 * 1008 * (kWorkers - 1) / kWorkers + 2 * 8 * 6 * (kWorkers - 1) / kWorkers));
  }
}

}  // namespace
}  // namespace co2
