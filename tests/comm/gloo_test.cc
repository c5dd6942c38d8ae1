// The c10d backend with real processes: each test forks its ranks before anything of LibTorch has started a thread.
#include <ATen/ATen.h>
#include <co2/cluster.h>
#include <co2/error.h>
#include <gtest/gtest.h>

#include "support/processes.h"

namespace co2 {
namespace {

using test::run_processes;

TEST(Gloo, CollectivesAgreeWithTheirDefinition) {
  for (const int size : {2, 3}) {
    run_processes(size, [size](int rank) {
      const Cluster cluster = Cluster::from_environment();
      CO2_EXPECT(cluster.rank() == rank && cluster.size() == size);
      auto group = cluster.communicator("test");
      CO2_EXPECT(group->backend() == "c10d/gloo");
      for (const std::int64_t numel : {1, 3, 1023, 1025}) {
        const at::Tensor mine = at::arange(numel, at::kFloat) + rank;
        group->all_reduce(mine, ReduceOp::kSum)->wait();
        CO2_EXPECT(mine.equal(at::arange(numel, at::kFloat) * size + size * (size - 1) / 2));

        const at::Tensor largest = at::full({numel}, rank, at::kDouble);
        group->all_reduce(largest, ReduceOp::kMax)->wait();
        CO2_EXPECT(largest.equal(at::full({numel}, size - 1, at::kDouble)));

        const at::Tensor word = at::full({numel}, rank, at::kLong);
        group->broadcast(word, size - 1)->wait();
        CO2_EXPECT(word.equal(at::full({numel}, size - 1, at::kLong)));

        const at::Tensor gathered = at::empty({size * numel});
        group->all_gather(gathered, at::full({numel}, float(rank)))->wait();
        CO2_EXPECT(gathered.equal(at::arange(size, at::kFloat).repeat_interleave(numel)));

        const at::Tensor part = at::empty({numel});
        group->reduce_scatter(part, at::arange(size * numel, at::kFloat), ReduceOp::kSum)->wait();
        CO2_EXPECT(part.equal((at::arange(numel, at::kFloat) + rank * numel) * size));
      }
      const WorkPtr work = group->barrier();
      work->wait();
      CO2_EXPECT(work->completed() && work->finished() >= work->started());
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
