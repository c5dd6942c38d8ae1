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

struct TheUsersOwn : std::exception {};

// Defect 9: a background thread that hangs the process at exit, with an exchange in flight.
TEST(Defect9, TheProcessEndsWithAnExchangeInFlight) {
  enum class Way { kReturn, kException, kPeerIsGone, kExit };
  for (const Way way : {Way::kReturn, Way::kException, Way::kPeerIsGone, Way::kExit}) {
    const auto train = [way](int rank) {
      const Cluster cluster = Cluster::from_environment();
      Toy toy({100'000});
      auto optimizer = plain_sgd(toy, 0.1);
      Synchronizer sync(cluster, toy, optimizer, kOverlapped);
      for (int i = 0; i < 5; ++i) {
        if (way == Way::kPeerIsGone && rank == 1 && i == 3) _exit(0);  // before the launch that rank 0 waits for
        toy.set_gradients(1);
        sync.step();
      }
      if (way == Way::kException) throw TheUsersOwn();
      if (way == Way::kExit) std::exit(0);  // from the midst of it: destroys static objects, but none of the above
    };
    const auto main_of_a_worker = [&](int rank) {
      try {
        train(rank);  // by its end, or by unwinding, everything in it has been destroyed
      } catch (const TheUsersOwn&) {
      }
      std::exit(0);  // what follows a return from main, with static destructors, unlike the harness's own way out
    };
    SCOPED_TRACE(testing::Message() << "way " << static_cast<int>(way));
    run_processes(2, main_of_a_worker, std::chrono::seconds(20));
    if (HasFailure()) return;
  }
}

TEST(Gloo, AFailedExchangeNamesTheRoundAndLeavesTheStateIntact) {
  run_processes(2, [](int rank) {
    const Cluster cluster = Cluster::from_environment({.collective_timeout = std::chrono::seconds(20)});
    Toy toy({1000});
    auto optimizer = plain_sgd(toy, 1);
    Synchronizer sync(cluster, toy, optimizer, kOverlapped);
    const auto step = [&] {
      toy.set_gradients(1);
      sync.step();
    };
    for (int i = 0; i < 11; ++i) step();  // one exchange applied, the next one under way
    if (rank == 1) _exit(0);
    at::Tensor consensus;
    at::Tensor live;
    bool failed = false;
    try {
      // The next may still succeed if the peer died after its data had gone out, but not for ever.
      for (int i = 0; i < 13; ++i) {
        consensus = sync.consensus().clone();
        live = toy.parameter[0].detach().clone();
        step();
      }
    } catch (const CommError& error) {
      failed = true;
      CO2_EXPECT(error.where().round >= 1 && error.where().rank == 0);
      CO2_EXPECT(sync.consensus().equal(consensus));
      CO2_EXPECT(toy.parameter[0].equal(live - 1));  // its own step, nothing of the exchange
    }
    CO2_EXPECT(failed);
  });
}

}  // namespace
}  // namespace co2
