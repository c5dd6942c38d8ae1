// Blocks of a few bits over real collectives: nothing is lost, nobody is poisoned, and what is damaged is noticed.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <mutex>

#include "island/island.h"
#include "options/recipe.h"
#include "outer/wire_dtype.h"
#include "support/passing_on.h"
#include "support/toy.h"
#include "support/workers.h"
#include "sync/block_wire.h"

namespace co2 {
namespace {

using test::plain_sgd;
using test::run_workers;
using test::Toy;

constexpr Wire kWires[] = {Wire::kInt8, Wire::kInt4, Wire::kInt2};

at::Tensor random(std::int64_t numel, int seed) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  return at::randn({numel}, generator) * at::exp(2 * at::randn({numel}, generator));
}

/// One worker that exchanges progress in blocks, without anything else.
struct Worker {
  Worker(const Cluster& cluster, const Options& options, const std::vector<std::int64_t>& sizes)
      : island(cluster, options.island_size, cluster.communicator("data", Carries::kTensors)) {
    for (const std::int64_t size : sizes) {
      stretches.push_back({numel, numel + size});
      numel += size;
    }
    unsent = at::zeros({numel});
    format = std::make_unique<BlockWire>(island, resolve(options), unsent, numel);
  }

  /// Returns the sum over the workers.
  at::Tensor exchange(double weight, Wire wire) {
    Message message = format->allocate(numel, stretches.size(), true);
    std::vector<WireFormat::Progress> progress;
    for (const Range& range : stretches) {
      const at::Tensor d = unsent.narrow(0, range.begin, range.size());
      progress.push_back({range, d, at::zeros_like(d)});
    }
    sent = format->start(message, progress, {.weight = weight, .wire = wire, .round = ++round});
    for (const WorkPtr& work : message.works) work->wait();
    bytes = message.bytes;
    at::Tensor sum = at::zeros({numel});
    for (const Range& stretch : stretches) {
      for (const auto& [range, values, own] : format->sum(message, stretch)) {
        sum.narrow(0, range.begin, range.size()).copy_(outer::decode(values));
        unsent.narrow(0, range.begin, range.size()).sub_(outer::decode(own));
      }
    }
    return sum;
  }

  Island island;
  std::vector<Range> stretches;
  std::int64_t numel = 0;
  std::unique_ptr<BlockWire> format;
  at::Tensor unsent;
  WireFormat::Sent sent;
  std::int64_t round = 0;
  std::int64_t bytes = 0;
};

// What has arrived, what owners keep and what workers keep is all that was ever made: over many rounds, whatever the
// weights, sizes and wires.
TEST(BlockWire, NothingIsEverLost) {
  constexpr int kRounds = 40;
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{0}, {1}, {63, 1}, {64}, {65, 0, 17}, {1000, 3, 777}}) {
    for (const int workers : {1, 2, 3, 5, 7}) {
      for (const Wire wire : kWires) {
        std::mutex mutex;
        at::Tensor made, kept_by_workers, kept_by_owners, arrived;
        const auto add = [&](at::Tensor& total, const at::Tensor& mine) {
          const std::lock_guard lock(mutex);
          total = total.defined() ? total + mine.to(at::kDouble) : mine.to(at::kDouble);
        };
        run_workers(workers, [&](const Cluster& cluster) {
          const int rank = cluster.rank();
          Worker worker(cluster, {.local_steps = 4, .wire = wire}, sizes);
          const double weight = 1 + rank;
          const double total_weight = workers * (workers + 1) / 2.0;
          at::Tensor mine = at::zeros({worker.numel}, at::kDouble);
          at::Tensor sums = at::zeros({worker.numel}, at::kDouble);
          for (int round = 0; round < kRounds; ++round) {
            const at::Tensor progress = random(worker.numel, 1000 * round + rank);
            worker.unsent.add_(progress);
            mine.add_(progress, weight);
            sums.add_(worker.exchange(weight, wire));
          }
          add(made, mine);
          add(kept_by_workers, worker.unsent * weight);
          add(kept_by_owners, worker.format->rest() * total_weight);
          if (rank == 0) add(arrived, sums);
        });
        const at::Tensor accounted = arrived + kept_by_workers + kept_by_owners;
        EXPECT_TRUE(at::allclose(accounted, made, 1e-5, 1e-2))
            << name(wire) << ", " << workers << " workers, off by " << (accounted - made).abs().max();
        if (made.numel() > 1000 && workers > 1 && wire == Wire::kInt2) {  // it was rounded indeed
          EXPECT_GT(kept_by_workers.abs().max().item<double>(), 0.1);
          EXPECT_GT(kept_by_owners.abs().max().item<double>(), 0.01);
        }
      }
    }
  }
}

TEST(BlockWire, EverybodyHasTheSameBits) {
  for (const Wire wire : kWires) {
    std::vector<at::Tensor> sums(4);
    run_workers(4, [&](const Cluster& cluster) {
      Worker worker(cluster, {.local_steps = 4, .wire = wire}, {1000, 37});
      for (int round = 0; round < 3; ++round) {
        worker.unsent.add_(random(worker.numel, 10 * round + cluster.rank()));
        sums[static_cast<std::size_t>(cluster.rank())] = worker.exchange(1, wire);
      }
    });
    for (const at::Tensor& sum : sums) EXPECT_TRUE(at::equal(sum, sums[0]));
    EXPECT_GT(sums[0].abs().max().item<double>(), 0);
  }
}

TEST(BlockWire, SendsFewBits) {
  constexpr std::int64_t kNumel = 1'000'000;
  const double limits[] = {8.5, 4.5, 2.3};
  for (std::size_t i = 0; i < std::size(kWires); ++i) {
    for (const int workers : {2, 3}) {
      run_workers(workers, [&](const Cluster& cluster) {
        Worker worker(cluster, {.local_steps = 4, .wire = kWires[i]}, {kNumel});
        worker.unsent.add_(1);
        worker.exchange(1, kWires[i]);
        const double of_all = 8.0 * static_cast<double>(worker.bytes) / (2.0 * (workers - 1) / workers) / kNumel;
        EXPECT_LE(of_all, limits[i]);
        EXPECT_NEAR(of_all, 8 * wire_element_bytes(kWires[i], at::kFloat), 0.01);
        EXPECT_EQ(worker.format->wire_bytes(kNumel, kWires[i]), worker.bytes);
      });
    }
  }
}

// One form after the other, as an automatic choice does it: what one has left behind goes with the other.
TEST(BlockWire, FormsMayTakeTurns) {
  run_workers(3, [&](const Cluster& cluster) {
    Worker worker(cluster, {.local_steps = 4, .wire = Wire::kInt8}, {500, 100});
    at::Tensor arrived = at::zeros({600});
    worker.unsent.add_(random(600, 5));  // the same for all of them
    for (int round = 0; round < 60; ++round) arrived.add_(worker.exchange(1, kWires[round % 3]));
    EXPECT_TRUE(at::allclose(arrived / 3, random(600, 5), 1e-4, 1e-4));
  });
}

TEST(BlockWire, LeavesOutWhatIsNotFinite) {
  for (const Wire wire : kWires) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), 3e38f}) {
      run_workers(3, [&](const Cluster& cluster) {
        Worker worker(cluster, {.local_steps = 4, .wire = wire}, {100, 100});
        worker.unsent.fill_(1);
        if (cluster.rank() == 1) worker.unsent[150] = bad;
        const at::Tensor sum = worker.exchange(2, wire);
        EXPECT_EQ(worker.sent.left_out, cluster.rank() == 1);
        EXPECT_TRUE(at::allclose(sum, at::full({200}, 4.0), 1e-2, 0)) << name(wire) << " " << bad;
        if (cluster.rank() == 1) {
          EXPECT_EQ(worker.unsent[0].item<float>(), 1);  // it keeps what it did not send
          ASSERT_EQ(worker.sent.norms.size(), 2U);
          for (const outer::LaunchNorms& norms : worker.sent.norms) EXPECT_EQ(norms.sent, 0);
        }
      });
    }
  }
}

/// A network that changes a byte of the first thing that rank 1 sends to the owners of blocks.
class Damaging final : public test::PassingOn {
 public:
  Damaging(std::shared_ptr<Communicator> real, std::int64_t byte) : PassingOn(std::move(real)), byte_(byte) {}
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input) override {
    if (rank() != 1) return PassingOn::all_to_all(output, input);
    const at::Tensor damaged = input.clone();
    damaged.data_ptr<std::uint8_t>()[byte_] ^= 0x10;
    return PassingOn::all_to_all(output, damaged);
  }

 private:
  std::int64_t byte_;
};

Cluster damaging(const Cluster& cluster, std::int64_t byte) {
  return Cluster::over({.rank = cluster.rank(),
                        .size = cluster.size(),
                        .make = [cluster, byte](const std::string& name, const std::vector<int>& ranks, int,
                                                Carries what) -> std::shared_ptr<Communicator> {
                          return std::make_shared<Damaging>(cluster.communicator(name, ranks, what), byte);
                        }});
}

TEST(BlockWire, NoticesAnotherFormatAndWithAChecksumAnyDamage) {
  const auto failure_of_rank_0 = [](std::int64_t byte, bool checksum) {
    std::string failure;
    run_workers(2, [&](const Cluster& cluster) {
      Worker worker(damaging(cluster, byte), {.local_steps = 4, .wire = Wire::kInt4, .checksum = checksum}, {1000});
      worker.unsent.fill_(1);
      try {
        worker.exchange(1, Wire::kInt4);
      } catch (const CommError& error) {
        if (cluster.rank() == 0) failure = error.what();
      }
    });
    return failure;
  };
  EXPECT_NE(failure_of_rank_0(4, false).find("another program"), std::string::npos);  // the version
  EXPECT_NE(failure_of_rank_0(5, false).find("another program"), std::string::npos);  // the wire
  EXPECT_NE(failure_of_rank_0(100, true).find("checksum"), std::string::npos);        // a code
  EXPECT_EQ(failure_of_rank_0(100, false), "");                                       // nobody asked
}

TEST(BlockWire, NamesWorkersOfIslandsAsTheClusterDoes) {
  run_workers(4, [&](const Cluster& cluster) {
    Worker worker(damaging(cluster, 4), {.local_steps = 4, .wire = Wire::kInt4, .island_size = 2}, {1000});
    worker.unsent.fill_(1);
    if (cluster.rank() >= 2) {  // whose first all-to-all is damaged
      EXPECT_THROW(worker.exchange(1, Wire::kInt4), CommError);
      return;
    }
    try {
      worker.exchange(1, Wire::kInt4);
      ADD_FAILURE() << "it was damaged";
    } catch (const CommError& error) {
      EXPECT_EQ(error.where().rank, cluster.rank());
      EXPECT_EQ(error.where().peer, "rank " + std::to_string(cluster.rank() + 2)) << error.what();
    }
  });
}

Options averaging(Wire wire, int local_steps, int fragments) {
  return {.strategy = Strategy::kCo2,
          .local_steps = local_steps,
          .fragments = fragments,
          .momentum = 0,
          .penalty = false,
          .clip = 0,
          .wire = wire};
}

// With gradients that do not depend on the parameters, all of the workers' progress is in the model at the end, however
// it was rounded on its way: of every element the mean.
TEST(BlockWire, AWholeRunKeepsAllProgress) {
  constexpr int kSteps = 37;
  for (const Wire wire : {Wire::kPlain, Wire::kInt8, Wire::kInt4, Wire::kInt2}) {
    for (const auto& [local_steps, fragments] : {std::pair{1, 1}, {2, 2}, {3, 1}, {6, 3}}) {
      for (const auto& [workers, island, zero] :
           std::vector<std::array<int, 3>>{{1, 1, 0}, {2, 1, 0}, {5, 1, 0}, {4, 2, 0}, {4, 2, 1}, {6, 2, 2}}) {
        const std::vector<std::int64_t> sizes{1, 100, 37, 1000};
        std::vector<at::Tensor> expected;
        for (const std::int64_t size : sizes) expected.push_back(at::zeros({size}, at::kDouble));
        const auto gradient = [](std::int64_t size, int rank, int step) { return random(size, 977 * step + rank); };
        for (int rank = 0; rank < workers; ++rank) {
          for (int step = 0; step < kSteps; ++step) {
            for (std::size_t i = 0; i < sizes.size(); ++i) {
              expected[i].sub_(gradient(sizes[i], rank, step), 0.1 / workers);
            }
          }
        }
        Options options = averaging(wire, local_steps, fragments);
        options.island_size = island;
        options.zero = zero;
        run_workers(workers, [&](const Cluster& cluster) {
          Toy toy(sizes);
          auto optimizer = plain_sgd(toy, 0.1);
          Synchronizer sync(cluster, toy, optimizer, options);
          for (int step = 0; step < kSteps; ++step) {
            optimizer.zero_grad();
            at::Tensor loss = at::zeros({});
            for (const at::Tensor& p : toy.parameter) {
              loss = loss + (p * gradient(p.numel(), cluster.rank(), step)).sum();
            }
            loss.backward();
            sync.step();
          }
          sync.finish();
          for (std::size_t i = 0; i < sizes.size(); ++i) {
            EXPECT_TRUE(at::allclose(toy.parameter[i].detach().to(at::kDouble), expected[i], 1e-4, 2e-4))
                << name(wire) << " " << local_steps << "/" << fragments << ", " << workers << " workers in islands of "
                << island << ", ZeRO " << zero << ": " << (toy.parameter[i].detach() - expected[i]).abs().max();
          }
        });
      }
    }
  }
}

/// Two workers whose parameters move by given steps: Core alone, without gradients.
at::Tensor consensus_after(
    const Options& options, const std::vector<std::int64_t>& sizes, int steps,
    const std::function<double(int)>& rate_of,
    const std::function<at::Tensor(int rank, int step, std::size_t parameter)>& direction,
    const std::function<double(int rank, int step)>& samples = [](int, int) { return 1.0; }, bool finish = false) {
  std::vector<at::Tensor> ends(2);
  run_workers(2, [&](const Cluster& cluster) {
    TrainedModel model;
    for (const std::int64_t size : sizes) {
      model.parameters.push_back({at::zeros({size}).requires_grad_(), std::to_string(model.parameters.size())});
    }
    Core core(cluster, model, options);
    for (int step = 0; step < steps; ++step) {
      const double rate = rate_of(step);
      if (core.begin_step({rate}, samples(cluster.rank(), step))) {
        const at::NoGradGuard no_grad;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          model.parameters[i].tensor.sub_(direction(cluster.rank(), step, i), rate);
        }
      }
      core.end_step({rate});
    }
    if (finish) core.finish();
    std::vector<at::Tensor> parts;
    core.with_consensus([&] {
      for (const Parameter& parameter : model.parameters) parts.push_back(parameter.tensor.detach().clone());
    });
    ends[static_cast<std::size_t>(cluster.rank())] = at::cat(parts);
  });
  EXPECT_TRUE(ends[0].equal(ends[1]));
  return ends[0];
}

/// What rounding left behind at a high rate goes out at a low one. In units of that, momentum would remember a
/// multiple of it, and let it loose when the rate rises again.
TEST(BlockWire, ARateThatFallsAndRisesDoesNotMultiplyWhatRoundingLeft) {
  const auto random_walk = [](int rank, int step, std::size_t) { return random(500, 1000 * rank + step); };
  const auto pause = [](int step) { return step >= 80 && step < 104 ? 1e-4 : 1.0; };
  const auto restarts = [](int step) { return 0.5 * (1 + std::cos(M_PI * (step % 88) / 88)); };
  const auto run = [&](Wire wire, double clip, const std::function<double(int)>& rate_of) {
    const Options options{.local_steps = 8, .fragments = 1, .momentum = 0.3, .clip = clip, .wire = wire};
    return consensus_after(options, {500}, 264, rate_of, random_walk);
  };
  const auto error = [&](Wire wire, double clip, const std::function<double(int)>& rate_of) {
    const at::Tensor plain = run(Wire::kPlain, clip, rate_of);
    return ((run(wire, clip, rate_of) - plain).norm() / plain.norm()).item<double>();
  };
  const std::map<Wire, double> few = {{Wire::kInt8, 0.03}, {Wire::kInt4, 0.15}, {Wire::kInt2, 0.5}};
  for (const auto& [wire, most] : few) {
    for (const double clip : {0.0, 4.0}) {
      EXPECT_LT(error(wire, clip, pause), most) << name(wire) << ", clip " << clip;
      EXPECT_LT(error(wire, clip, restarts), most) << name(wire) << ", clip " << clip;
    }
  }
}

/// Of a time of higher rates, or of a pause: it is ordinary progress that has not been sent yet.
TEST(BlockWire, WhatRoundingLeftIsNoBurst) {
  const auto direction = [](int rank, int step, std::size_t) {
    return at::arange(70).sin().mul_(0.5).add_(random(70, 1000 * rank + step), 0.3);
  };
  const auto clipped = [&](Options options, double low, int pause_of_first, int pause) {
    const auto rate = [=](int step) { return step >= 80 && step < 160 ? 0.05 * low : 0.05; };
    const auto samples = [=](int rank, int step) {
      return step >= 40 && step < 40 + (rank == 0 ? pause_of_first : pause) ? 0.0 : 1.0;
    };
    const at::Tensor end = consensus_after(options, {70}, 240, rate, direction, samples);
    options.clip = 0;
    return !end.equal(consensus_after(options, {70}, 240, rate, direction, samples));
  };
  for (const Wire wire : {Wire::kInt4, Wire::kInt2}) {
    for (const int local_steps : {1, 4}) {
      const Options options{.local_steps = local_steps, .fragments = 1, .wire = wire};
      for (const double low : {0.1, 0.03, 0.01, 1e-3}) {
        EXPECT_FALSE(clipped(options, low, 0, 0)) << name(wire) << " " << local_steps << ", rate times " << low;
      }
      EXPECT_FALSE(clipped(options, 1, 39, 39)) << name(wire) << " " << local_steps << ", a pause";
      EXPECT_FALSE(clipped(options, 1, 39, 0)) << name(wire) << " " << local_steps << ", a pause of one";
    }
  }
}

/// And what owners have kept of sums at a high rate is nothing that momentum should remember at a low one.
TEST(BlockWire, MomentumDoesNotRememberWhatOwnersKept) {
  const auto direction = [](int rank, int step, std::size_t) {
    return at::arange(70).sin().mul_(0.5).add_(random(70, 1000 * rank + step), 0.3);
  };
  const auto error = [&](Options options, double low) {
    const auto end = [&] {
      return consensus_after(
          options, {70}, 240, [=](int step) { return step >= 80 && step < 160 ? 0.05 * low : 0.05; }, direction,
          [](int, int) { return 1.0; }, /*finish=*/true);
    };
    const at::Tensor in_blocks = end();
    options.wire = Wire::kPlain;
    const at::Tensor plain = end();
    return ((in_blocks - plain).norm() / plain.norm()).item<double>();
  };
  for (const double low : {1e-3, 1e-6}) {
    EXPECT_LT(error({.local_steps = 12, .fragments = 1, .momentum = 0.3, .wire = Wire::kInt4}, low), 0.12);
    EXPECT_LT(error({.local_steps = 12, .fragments = 1, .momentum = 0.3, .wire = Wire::kInt2}, low), 0.2);
    EXPECT_LT(error({.local_steps = 6, .fragments = 1, .momentum = 0.9, .wire = Wire::kInt4}, low), 0.15);
    EXPECT_LT(error({.local_steps = 6, .fragments = 1, .momentum = 0.9, .wire = Wire::kInt2}, low), 0.5);
  }
}

/// The same of one parameter group whose rate falls while another's, in the same fragment and far larger, does not.
TEST(BlockWire, MomentumDoesNotRememberWhatOneGroupKept) {
  for (const Wire wire : {Wire::kInt4, Wire::kInt2}) {
    for (const double low : {1e-3, 1e-5}) {
      run_workers(2, [&](const Cluster& cluster) {
        const at::NoGradGuard no_grad;
        constexpr int kTau = 12, kLarge = 20000, kSmall = 256;
        at::Tensor large = at::zeros({kLarge}), small = at::zeros({kSmall});
        large.set_requires_grad(true);
        small.set_requires_grad(true);
        Core core(cluster, {.parameters = {{large, "large", 0}, {small, "small", 1}}},
                  {.local_steps = kTau, .momentum = 0.3, .wire = wire});
        auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(50 + cluster.rank()));
        at::Tensor before = at::zeros({kSmall});
        double usual = 0, after = 0;
        for (int step = 1; step <= 14 * kTau; ++step) {
          const bool pause = step > 61 && step <= 8 * kTau;
          const double rate = pause ? 0.1 * low : 0.1;
          core.begin_step({0.1, rate});
          large.sub_(at::randn({kLarge}, generator), 0.1);
          const at::Tensor gradient = at::randn({kSmall}, generator);
          if (!pause) small.sub_(gradient, 0.1);
          core.end_step({0.1, rate});
          if (step % kTau != 0) continue;
          const at::Tensor now = core.consensus().narrow(0, kLarge, kSmall).clone();
          double& largest = step <= 8 * kTau ? usual : after;
          largest = std::max(largest, (now - before).norm().item<double>());
          before = now;
        }
        EXPECT_LT(after, 1.5 * usual) << name(wire) << ", rate times " << low;
      });
    }
  }
}

/// Slow ones share a block with fast ones, and are heard only now and then: that is no reason to forget what they did.
TEST(BlockWire, MomentumOfWhatIsSeldomHeardIsNotForgotten) {
  const auto constant = [](int, int, std::size_t parameter) {
    return parameter == 0 ? at::full({16}, 0.2) : at::ones({48});
  };
  constexpr int kTau = 6, kRounds = 60;
  constexpr double kBeta = 0.5;
  const double expected = 0.2 * kTau * kRounds / (1 - kBeta);
  for (const Wire wire : kWires) {
    const Options options{.local_steps = kTau, .fragments = 1, .momentum = kBeta, .clip = 0, .wire = wire};
    const at::Tensor end = consensus_after(
        options, {16, 48}, kTau * kRounds, [](int) { return 1.0; }, constant);
    EXPECT_NEAR(-end.narrow(0, 0, 16).mean().item<double>(), expected, 0.15 * expected) << name(wire);
  }
}

/// A parameter that nobody trains any more stands still, apart from what is yet to be heard of it: a coarse wire has it
/// end where one that rounds nothing has it end, and not further by what momentum would still do.
TEST(BlockWire, WhatIsFrozenRests) {
  constexpr int kTau = 12;
  constexpr double kRate = 0.1;
  for (const double beta : {0.3, 0.9}) {
    const auto end = [&](Wire wire, int steps) {
      // It shares blocks with others that go on, so that it is rounded.
      const auto frozen_later = [](int, int step, std::size_t parameter) {
        if (parameter == 1) return at::full({200}, 2.0);
        return at::full({48}, step < 96 ? 1.0 : 0.0);
      };
      const Options options{.local_steps = kTau, .fragments = 1, .momentum = beta, .clip = 0, .wire = wire};
      const at::Tensor all = consensus_after(
          options, {48, 200}, steps, [](int) { return kRate; }, frozen_later, [](int, int) { return 1.0; },
          /*finish=*/true);
      return -all.narrow(0, 0, 48).mean().item<double>();
    };
    const double plain = end(Wire::kPlain, 240);
    EXPECT_NEAR(plain, end(Wire::kPlain, 480), 1e-4 * plain);
    // What a worker and an owner have kept, half a quantum each, had momentum before it was frozen, or has none after.
    for (const auto& [wire, largest_code] : {std::pair{Wire::kInt8, 127}, {Wire::kInt4, 7}, {Wire::kInt2, 1}}) {
      const double quantum = 2 * kTau * kRate / largest_code;
      EXPECT_NEAR(end(wire, 240), plain, 1.05 * quantum * beta / (1 - beta)) << name(wire) << ", momentum " << beta;
      EXPECT_NEAR(end(wire, 480), end(wire, 240), 1e-3 * plain) << name(wire) << ", momentum " << beta;
    }
  }
}

// A worker whose parameters are no longer finite has no say; the others go on, and at the end it has their model.
TEST(LeftOut, NobodyIsPoisoned) {
  for (const Wire wire : {Wire::kPlain, Wire::kBfloat16, Wire::kInt8, Wire::kInt4, Wire::kInt2}) {
    for (const bool everybody : {false, true}) {
      run_workers(3, [&](const Cluster& cluster) {
        Toy toy({100, 5});
        auto optimizer = plain_sgd(toy, 1);
        Synchronizer sync(cluster, toy, optimizer, averaging(wire, 2, 1));
        const bool bad = everybody || cluster.rank() == 2;
        for (int step = 0; step < 12; ++step) {
          toy.set_gradients(1);
          if (step == 5 && bad) toy.parameter[1].mutable_grad()[3] = std::nan("");
          sync.step();
        }
        EXPECT_TRUE(sync.consensus().isfinite().all().item<bool>()) << name(wire);
        EXPECT_EQ(sync.left_out() > 0, bad) << name(wire);
        sync.finish();
        EXPECT_TRUE(sync.consensus().isfinite().all().item<bool>()) << name(wire);
        EXPECT_TRUE(toy.parameter[1].isfinite().all().item<bool>()) << name(wire);
        const double expected = everybody ? -5 : -12;
        EXPECT_NEAR(toy.parameter[0][0].item<double>(), expected, 1.1) << name(wire);
      });
    }
  }
}

// Blocks have no scale for it, although float32 could hold it, and finish() add it up.
TEST(LeftOut, WhatNoExchangeTookIsNotAveragedEither) {
  run_workers(3, [&](const Cluster& cluster) {
    Toy toy({100});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, averaging(Wire::kInt4, 1, 1));
    for (int step = 0; step < 12; ++step) {
      toy.set_gradients(1);
      if (step == 5 && cluster.rank() == 1) toy.parameter[0].mutable_grad()[3] = 1e37;
      sync.step();
    }
    sync.finish();
    EXPECT_NEAR(toy.parameter[0][3].item<double>(), -12, 1.1);
  });
}

}  // namespace
}  // namespace co2
