// The c10d backend with real processes: each test forks its ranks before anything of LibTorch has started a thread.
#include <ATen/ATen.h>
#include <co2/cluster.h>
#include <co2/error.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "comm/collectives.h"
#include "support/processes.h"

namespace co2 {
namespace {

using test::run_processes;

TEST(Gloo, CollectivesFollowTheirDefinition) {
  for (const int size : {2, 3, 4, 7}) {
    run_processes(size, [size](int rank) {
      const Cluster cluster = Cluster::from_environment();
      CO2_EXPECT(cluster.rank() == rank && cluster.size() == size);
      auto group = cluster.communicator("test");
      CO2_EXPECT(group->backend() == "c10d/gloo");
      test::expect_collectives_follow_their_definition(*group);
    });
  }
}

TEST(Gloo, GroupsDoNotQueueBehindEachOther) {
  run_processes(2, [](int rank) {
    const Cluster cluster = Cluster::from_environment();
    auto data = cluster.communicator("data");
    auto control = cluster.communicator("control");
    // Rank 1 does not join the first all-reduce until the second, on another group, is over on both.
    WorkPtr held;
    const at::Tensor a = at::ones({1000});
    if (rank == 0) held = data->all_reduce(a, ReduceOp::kSum);
    const at::Tensor b = at::ones({1});
    control->all_reduce(b, ReduceOp::kSum)->wait();
    if (rank == 1) held = data->all_reduce(a, ReduceOp::kSum);
    held->wait();
    CO2_EXPECT(a.equal(at::full({1000}, 2.F)) && b.item<float>() == 2);
  });
}

TEST(Gloo, AWorkerThatDiesIsAnErrorForTheOthers) {
  run_processes(2, [](int rank) {
    const Cluster cluster = Cluster::from_environment();
    auto group = cluster.communicator("test");
    group->barrier()->wait();
    if (rank == 1) _exit(0);
    try {
      // The first may have been sent before the other end was seen to be gone.
      for (int i = 0; i < 10; ++i) group->all_reduce(at::ones({1 << 20}), ReduceOp::kSum)->wait();
      CO2_EXPECT(false);
    } catch (const CommError& error) {
      CO2_EXPECT(error.where().rank == 0 && error.where().operation == "all-reduce" && !error.cause().empty());
    }
  });
}

TEST(Gloo, AGroupOfSomeWorkersNamesThemAsTheClusterDoes) {
  run_processes(4, [](int rank) {
    const Cluster cluster = Cluster::from_environment();
    auto group = cluster.communicator("across", {rank % 2 == 0 ? 0 : 1, rank % 2 == 0 ? 2 : 3});
    CO2_EXPECT(group->rank_in_cluster(group->rank()) == rank);
    CO2_EXPECT(group->rank_in_cluster(1 - group->rank()) == (rank + 2) % 4);
    cluster.communicator("all")->barrier()->wait();
    if (rank == 1) _exit(0);
    if (rank != 3) return;
    try {
      for (int i = 0; i < 10; ++i) group->all_reduce(at::ones({1 << 20}), ReduceOp::kSum)->wait();
      CO2_EXPECT(false);
    } catch (const CommError& error) {
      CO2_EXPECT(error.where().rank == 3);
      CO2_EXPECT(std::string(error.what()).find("failed on rank 3") != std::string::npos);
    }
  });
}

TEST(Gloo, ACollectiveThatOutlivesItsTimeoutIsAnError) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  run_processes(
      2,
      [&](int rank) {
        const Cluster cluster = Cluster::from_environment({.collective_timeout = std::chrono::seconds(2)});
        auto group = cluster.communicator("test");
        group->barrier()->wait();
        char word = 0;
        if (rank == 1) {  // never joins, but is there until rank 0 has given up: its end would be an error of its own
          CO2_EXPECT(read(told[0], &word, 1) == 1);
          return;
        }
        std::string operation;
        std::string cause;
        try {
          group->all_reduce(at::ones({1000}), ReduceOp::kSum)->wait();
        } catch (const CommError& error) {
          operation = error.where().operation;
          cause = error.cause();
        }
        CO2_EXPECT(write(told[1], &word, 1) == 1);
        CO2_EXPECT(operation == "all-reduce");
        CO2_EXPECT(cause.find("Timed out waiting 2000ms") != std::string::npos);
      },
      std::chrono::seconds(30));
  close(told[0]);
  close(told[1]);
}

TEST(Gloo, APortInUseIsNamed) {
  const test::ListeningSocket occupied;
  run_processes(2, [&](int rank) {
    if (rank == 1) return;
    setenv("MASTER_PORT", std::to_string(occupied.port()).c_str(), 1);
    unsetenv("CO2_MASTER_LISTEN_FD");
    try {
      Cluster::from_environment({.rendezvous_timeout = std::chrono::seconds(5)});
      CO2_EXPECT(false);
    } catch (const ClusterError& error) {
      const std::string text = error.what();
      CO2_EXPECT(text.find(std::to_string(occupied.port())) != std::string::npos);
      CO2_EXPECT(text.find("in use") != std::string::npos);
    }
  });
}

TEST(Gloo, AMissingWorkerIsAnErrorAfterTheTimeout) {
  run_processes(2, [](int rank) {
    if (rank == 1) return;
    try {
      Cluster::from_environment({.rendezvous_timeout = std::chrono::seconds(2)});
      CO2_EXPECT(false);
    } catch (const ClusterError& error) {
      CO2_EXPECT(std::string(error.what()).find("all workers were started") != std::string::npos);
    }
  });
}

}  // namespace
}  // namespace co2
