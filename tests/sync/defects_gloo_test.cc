// Defects of earlier implementations that need real processes and real sockets to show.
#include <co2/co2.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "support/processes.h"
#include "support/toy.h"

namespace co2 {
namespace {

using test::plain_sgd;
using test::run_processes;
using test::Toy;

constexpr Options kOverlapped{.strategy = Strategy::kCo2, .local_steps = 4, .fragments = 1};

// Defect 8: a blocking wait inside the communication library that stalls computation. Rank 1 joins the exchange only
// after rank 0 has told it, over another group, that it is already several steps past its launch.
TEST(Defect8, TheLibraryDoesNotStallTheTrainingThread) {
  run_processes(2, [](int rank) {
    const Cluster cluster = Cluster::from_environment({.collective_timeout = std::chrono::seconds(20)});
    Toy toy({100'000});
    auto optimizer = plain_sgd(toy, 0.1);
    Synchronizer sync(cluster, toy, optimizer, kOverlapped);
    auto control = cluster.communicator("control");
    const auto take_steps = [&](int count) {
      for (int i = 0; i < count; ++i) {
        toy.set_gradients(1);
        sync.step();
      }
    };
    if (rank == 0) take_steps(7);
    control->barrier()->wait();
    if (rank == 1) take_steps(7);
    take_steps(1);
    sync.finish();
    CO2_EXPECT(sync.steps() == 8);
  });
}

// Defect 9: a background thread that hangs the process at exit, with an exchange in flight and
// (a) all workers leaving by way of main's return, (b) an exception, (c) a peer that is gone.
TEST(Defect9, TheProcessEndsWithAnExchangeInFlight) {
  for (const int way : {0, 1, 2}) {
    run_processes(
        2,
        [way](int rank) {
          const Cluster cluster = Cluster::from_environment();
          Toy toy({100'000});
          auto optimizer = plain_sgd(toy, 0.1);
          try {
            Synchronizer sync(cluster, toy, optimizer, kOverlapped);
            for (int i = 0; i < 5; ++i) {
              if (way == 2 && rank == 1 && i == 3) _exit(0);  // just before the launch that rank 0 waits for
              toy.set_gradients(1);
              sync.step();
            }
            if (way == 1) throw std::runtime_error("the user's own");
          } catch (const std::runtime_error&) {
            // Unwinding has destroyed the Synchronizer; its group goes with the cluster.
          }
          std::exit(0);  // the real way out, with static destructors, unlike the harness's own
        },
        std::chrono::seconds(20));
    if (HasFailure()) return;
  }
}

TEST(Gloo, AFailedExchangeNamesTheRoundAndLeavesTheStateIntact) {
  run_processes(2, [](int rank) {
    const Cluster cluster = Cluster::from_environment({.collective_timeout = std::chrono::seconds(20)});
    Toy toy({1000});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, kOverlapped);
    const auto take_steps = [&](int count) {
      for (int i = 0; i < count; ++i) {
        toy.set_gradients(1);
        sync.step();
      }
    };
    take_steps(8);  // one exchange applied, the next one launched
    if (rank == 1) {
      take_steps(3);
      _exit(0);
    }
    const at::Tensor consensus = sync.consensus().clone();
    take_steps(3);
    try {
      take_steps(1);   // may still succeed if the peer died after its data had gone out ...
      take_steps(12);  // ... but not for ever
      CO2_EXPECT(false);
    } catch (const CommError& error) {
      CO2_EXPECT(error.where().round >= 1 && error.where().rank == 0);
      const bool intact = sync.consensus().equal(consensus) || error.where().round >= 2;
      CO2_EXPECT(intact);
    }
  });
}

}  // namespace
}  // namespace co2
