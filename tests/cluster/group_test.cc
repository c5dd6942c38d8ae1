#include "cluster/group.h"

#include <co2/cluster.h>
#include <co2/error.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace co2 {
namespace {

TEST(Group, AnyExceptionOnOneWorkerIsAnErrorOnAll) {
  auto clusters = Cluster::in_process(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      Group group(clusters[index].communicator("group"));
      try {
        group.all_or_none("do it", [&] {
          if (rank == 1) throw std::runtime_error("not ours");
        });
      } catch (const std::exception& error) {
        errors[index] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(errors[0], "another worker could not do it; its own message says why");
  EXPECT_EQ(errors[1], "not ours");
}

}  // namespace
}  // namespace co2
