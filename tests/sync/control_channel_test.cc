#include "sync/control_channel.h"

#include <gtest/gtest.h>

#include "support/gate.h"
#include "support/workers.h"

namespace co2 {
namespace {

TEST(ControlChannel, AllWorkersReadTheSameSumsAtTheSameStep) {
  test::run_workers(3, [](const Cluster& cluster) {
    ControlChannel channel(cluster.communicator("control"), 2, 2);
    std::vector<int> read_at;
    for (int step = 1; step <= 8; ++step) {
      const auto sums = channel.step({1.0, double(step)});
      if (!sums) continue;
      read_at.push_back(step);
      // Launched at step - 2, with the numbers of the two steps up to it, from three workers.
      EXPECT_EQ((*sums)[0], 6);
      EXPECT_EQ((*sums)[1], 3.0 * (step - 3 + step - 2));
    }
    EXPECT_EQ(read_at, (std::vector<int>{4, 6, 8}));
    const auto last = channel.drain();
    ASSERT_TRUE(last);
    EXPECT_EQ((*last)[1], 3.0 * (7 + 8));
    EXPECT_FALSE(channel.drain());
  });
}

TEST(ControlChannel, DoesNotWaitBeforeTheSumsAreDue) {
  test::Gate gate;
  test::run_workers(Cluster::in_process(2, gate.wire()), [&](const Cluster& cluster) {
    ControlChannel channel(cluster.communicator("control"), 4, 1);
    cluster.communicator("test")->barrier()->wait();
    gate.close();
    for (int step = 1; step <= 7; ++step) EXPECT_FALSE(channel.step({1}));
    gate.open();
    EXPECT_EQ(channel.step({1}).value()[0], 8);
  });
}

}  // namespace
}  // namespace co2
