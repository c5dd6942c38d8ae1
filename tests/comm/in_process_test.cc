#include "comm/in_process.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "comm/collectives.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;

TEST(InProcess, AllReduceSumsInOrderOfRank) {
  for (const int size : {1, 2, 3, 4, 7}) {
    for (const std::int64_t numel : {0, 1, 3, 1023, 1025}) {
      run_workers(size, [&](const Cluster& cluster) {
        auto group = cluster.communicator("test");
        at::Tensor expected = at::zeros({numel});
        for (int r = 0; r < size; ++r) {
          const at::Tensor part = at::arange(numel, at::kFloat) * 0.1 + r * 0.3;
          expected = r == 0 ? part : expected + part;
        }
        const at::Tensor mine = at::arange(numel, at::kFloat) * 0.1 + cluster.rank() * 0.3;
        group->all_reduce(mine, ReduceOp::kSum)->wait();
        EXPECT_TRUE(mine.equal(expected));
      });
    }
  }
}

TEST(InProcess, CollectivesFollowTheirDefinition) {
  for (const int size : {1, 2, 3, 4, 7}) {
    run_workers(size, [](const Cluster& cluster) {
      test::expect_collectives_follow_their_definition(*cluster.communicator("test"));
    });
  }
}

TEST(InProcess, StartingReturnsWhileTheWireIsHeld) {
  std::promise<void> gate;
  std::shared_future<void> opened = gate.get_future().share();
  std::atomic<int> started{0};
  std::thread opener([&] {
    // Both ranks get past the start of two collectives although none can be carried out.
    while (started < 2) std::this_thread::yield();
    gate.set_value();
  });
  run_workers(Cluster::in_process(2, [opened] { opened.wait(); }), [&](const Cluster& cluster) {
    auto group = cluster.communicator("test");
    const at::Tensor a = at::ones({4});
    const at::Tensor b = at::ones({4});
    const WorkPtr first = group->all_reduce(a, ReduceOp::kSum);
    const WorkPtr second = group->all_reduce(b, ReduceOp::kSum);
    EXPECT_FALSE(first->completed());
    EXPECT_FALSE(second->completed());
    ++started;
    first->wait();
    second->wait();
    EXPECT_TRUE(a.equal(at::full({4}, 2.F)));
    EXPECT_GE(second->finished(), first->finished());
    EXPECT_GE(first->finished(), first->started());
  });
  opener.join();
}

TEST(InProcess, ARankThatLeavesIsAnErrorForTheOthersNotAHang) {
  run_workers(3, [&](const Cluster& cluster) {
    auto group = cluster.communicator("test");
    group->barrier()->wait();
    if (cluster.rank() == 1) return;
    try {
      group->all_reduce(at::ones({3}), ReduceOp::kSum)->wait();
      ADD_FAILURE() << "the all-reduce can't have worked";
    } catch (const CommError& error) {
      EXPECT_EQ(error.where().operation, "all-reduce");
      EXPECT_EQ(error.where().rank, cluster.rank());
      EXPECT_NE(std::string(error.what()).find("rank 1 has left"), std::string::npos) << error.what();
      EXPECT_EQ(error.exit_code(), 5);
    }
  });
}

TEST(InProcess, AGroupOfSomeWorkersNamesThemAsTheClusterDoes) {
  run_workers(4, [&](const Cluster& cluster) {
    const int rank = cluster.rank();
    auto group = cluster.communicator("across", {rank % 2 == 0 ? 0 : 1, rank % 2 == 0 ? 2 : 3});
    EXPECT_EQ(group->rank_in_cluster(group->rank()), rank);
    EXPECT_EQ(group->rank_in_cluster(1 - group->rank()), (rank + 2) % 4);
    group->barrier()->wait();
    if (rank < 2) return;
    try {
      group->barrier()->wait();
      ADD_FAILURE() << "nobody is left";
    } catch (const CommError& error) {
      EXPECT_EQ(error.where().rank, rank);
      const std::string text = "rank " + std::to_string(rank - 2) + " has left";
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  });
}

TEST(InProcess, AnErrorOfNobodyInParticularNamesNoRank) {
  EXPECT_EQ(std::string(CommError({"exchange", -1, -1, ""}, "why").what()).rfind("exchange failed: why", 0), 0U);
}

TEST(InProcess, MismatchedCollectivesAreAnError) {
  run_workers(2, [&](const Cluster& cluster) {
    auto group = cluster.communicator("test");
    EXPECT_THROW(group->all_reduce(at::ones({3 + cluster.rank()}), ReduceOp::kSum)->wait(), CommError);
  });
}

TEST(InProcess, WaitGivesUpAfterItsTimeout) {
  auto clusters = Cluster::in_process(2);
  auto first = clusters[0].communicator("test");
  auto second = clusters[1].communicator("test");
  const WorkPtr work = first->all_reduce(at::ones({1}), ReduceOp::kSum);
  EXPECT_THROW(work->wait(std::chrono::milliseconds(20)), CommError);
}

TEST(InProcess, AGroupHasATimeoutOfItsOwn) {
  auto clusters = Cluster::in_process(2, {}, std::chrono::milliseconds(200));
  auto first = clusters[0].communicator("g");
  auto second = clusters[1].communicator("g");  // is there, but never comes
  const at::Tensor x = at::ones({4});
  EXPECT_THROW(first->all_reduce(x, ReduceOp::kSum)->wait(), CommError);
  EXPECT_THROW(Cluster::in_process(2, {}, std::chrono::milliseconds(0)), OptionError);
}

TEST(InProcess, ARankThatEndsBeforeItHasJoinedIsAnErrorForTheOthers) {
  for (const bool before : {false, true}) {  // the others ask for the group
    auto clusters = Cluster::in_process(3);
    std::shared_ptr<Communicator> first;
    if (!before) first = clusters[0].communicator("g");
    clusters.pop_back();
    if (before) first = clusters[0].communicator("g");
    auto second = clusters[1].communicator("g");
    const at::Tensor x = at::ones({4});
    const at::Tensor y = at::ones({4});
    auto work = first->all_reduce(x, ReduceOp::kSum);
    EXPECT_THROW(second->all_reduce(y, ReduceOp::kSum)->wait(), CommError);
    EXPECT_THROW(work->wait(), CommError);
  }
}

TEST(InProcess, AFailureOnTheWireReachesEveryRank) {
  run_workers(Cluster::in_process(2, [] { throw std::runtime_error("cable pulled"); }), [&](const Cluster& cluster) {
    auto group = cluster.communicator("test");
    for (int i = 0; i < 2; ++i) {
      try {
        group->barrier()->wait();
        ADD_FAILURE();
      } catch (const CommError& error) {
        EXPECT_EQ(error.cause(), "cable pulled");
      }
    }
  });
}

}  // namespace
}  // namespace co2
