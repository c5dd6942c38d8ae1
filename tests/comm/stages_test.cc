// Exchanges of several collectives, which nobody has to come back for.

#include "comm/stages.h"

#include <ATen/ATen.h>
#include <co2/cluster.h>
#include <co2/error.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "support/gate.h"
#include "support/workers.h"

namespace co2 {
namespace {

using test::run_workers;

/// A sum in two stages: everybody's parts to their owner, and the sums to everybody.
WorkPtr sum_in_stages(Stages& stages, Communicator& first, Communicator& second, const at::Tensor& values) {
  const at::Tensor part = at::empty({values.numel() / first.size()}, values.options());
  return stages.start({[&first, part, values] { return first.reduce_scatter(part, values, ReduceOp::kSum); },
                       [&second, part, values] { return second.all_gather(values, part); }});
}

template <typename Condition>
bool comes_true(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST(Stages, AdvanceWhileNobodyWaits) {
  run_workers(3, [](const Cluster& cluster) {
    const auto first = cluster.communicator("first");
    const auto second = cluster.communicator("second");
    Stages stages(2);
    std::vector<at::Tensor> values;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 5; ++i) {
      values.push_back(at::full({6}, cluster.rank() + 10.0 * i));
      works.push_back(sum_in_stages(stages, *first, *second, values.back()));
    }
    for (int i = 0; i < 5; ++i) {
      const WorkPtr& work = works[static_cast<std::size_t>(i)];
      EXPECT_TRUE(comes_true([&] { return work->completed(); }));  // no wait() anywhere
      EXPECT_TRUE(values[static_cast<std::size_t>(i)].equal(at::full({6}, 3 + 30.0 * i)));
      EXPECT_GE(work->finished(), work->started());
    }
  });
}

TEST(Stages, StartInOrderWhateverArrivesFirst) {
  // Collectives of the first stage are over in any order: each has a group, and the first one's wire is held.
  test::Gate gate;
  gate.close();
  auto clusters = Cluster::in_process(1);
  auto held = Cluster::in_process(1, gate.wire());
  const auto slow = held[0].communicator("slow");
  const auto fast = clusters[0].communicator("fast");
  const auto second = clusters[0].communicator("second");
  Stages stages(2);
  std::mutex mutex;
  std::vector<int> order;
  const auto start = [&](int number, Communicator& group) {
    return stages.start({[&] { return group.barrier(); },
                         [&, number] {
                           const std::lock_guard lock(mutex);
                           order.push_back(number);
                           return second->barrier();
                         }});
  };
  const WorkPtr a = start(1, *slow);
  const WorkPtr b = start(2, *fast);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(order.empty());
  }
  gate.open();
  b->wait();
  a->wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(Stages, AFailureIsThatOfItsExchangeOnly) {
  auto clusters = Cluster::in_process(1);
  const auto first = clusters[0].communicator("first");
  const auto second = clusters[0].communicator("second");
  Stages stages(2);
  bool finished = false;
  const auto good = [&] { return first->barrier(); };
  const WorkPtr bad = stages.start({good, [&]() -> WorkPtr { throw OptionError("no"); }});
  const WorkPtr fine = stages.start({good, [&] { return second->barrier(); }}, [&] { finished = true; });
  fine->wait();
  EXPECT_TRUE(finished);
  EXPECT_THROW(bad->wait(), OptionError);
  EXPECT_TRUE(bad->completed());
  bool called = false;
  bad->then([&] { called = true; });
  EXPECT_TRUE(called);
}

TEST(Stages, OneThatNeverEndsIsBoundedByItsGroup) {
  auto clusters = Cluster::in_process(2, {}, std::chrono::milliseconds(100));
  const auto first = clusters[0].communicator("first");
  const auto other = clusters[1].communicator("first");  // is there, but never comes
  Stages stages(2);
  const at::Tensor values = at::zeros({4});
  const auto forever = [&] { return first->all_reduce(values, ReduceOp::kSum); };
  const WorkPtr work = stages.start({forever, forever});
  EXPECT_THROW(work->wait(), CommError);
  EXPECT_FALSE(work->completed());
  EXPECT_THROW(work->wait(std::chrono::milliseconds(10)), CommError);
}

}  // namespace
}  // namespace co2
