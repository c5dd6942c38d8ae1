#include "doctor/network_meter.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <thread>

#include "support/workers.h"

namespace co2::doctor {
namespace {

TEST(NetworkMeter, SizesGrowUpToTheModelAndNoFurther) {
  EXPECT_EQ(transfer_sizes(0), std::vector<std::int64_t>{4});
  EXPECT_EQ(transfer_sizes(1000), std::vector<std::int64_t>{1000});
  EXPECT_EQ(transfer_sizes(4'000'000), (std::vector<std::int64_t>{64 << 10, 1 << 20, 4'000'000}));
  EXPECT_EQ(transfer_sizes(std::int64_t{6} << 30), (std::vector<std::int64_t>{64 << 10, 1 << 20, 8 << 20, 64 << 20}));
}

TEST(NetworkMeter, AllWorkersHaveTheSameFigures) {
  std::array<NetworkFacts, 3> all;
  test::run_workers(3, [&](const Cluster& cluster) {
    all[static_cast<std::size_t>(cluster.rank())] =
        measure_network(*cluster.communicator("data"), 1'000'000, Wire::kPlain);
  });
  for (const NetworkFacts& facts : all) {
    EXPECT_EQ(facts.latency, all[0].latency);
    EXPECT_EQ(facts.model_seconds, all[0].model_seconds);
    EXPECT_EQ(facts.transfers.size(), 3U);
    EXPECT_GE(facts.model_seconds, facts.latency);
    EXPECT_TRUE(std::isfinite(facts.latency));
  }
}

TEST(NetworkMeter, ASlowNetworkEndsItEarlyAndIsExtrapolated) {
  // Every collective takes 0.4 s, as if 64 KiB were a lot: 1 MiB would take more than six seconds.
  auto clusters = Cluster::in_process(2, [] { std::this_thread::sleep_for(std::chrono::milliseconds(400)); });
  test::run_workers(std::move(clusters), [](const Cluster& cluster) {
    const NetworkFacts facts = measure_network(*cluster.communicator("data"), 100'000'000, Wire::kBfloat16);
    ASSERT_EQ(facts.transfers.size(), 1U);
    EXPECT_EQ(facts.transfers[0].bytes, 64 << 10);
    EXPECT_GT(facts.latency, 0.3);
  });
}

TEST(NetworkMeter, ClocksOfOneProcessAgree) {
  test::run_workers(2, [](const Cluster& cluster) {
    const auto clocks = measure_clocks(*cluster.communicator("clocks"));
    ASSERT_EQ(clocks.size(), 2U);
    EXPECT_EQ(clocks[1].rank, 1);
    EXPECT_LE(std::abs(clocks[1].seconds), clocks[1].error);
  });
}

}  // namespace
}  // namespace co2::doctor
