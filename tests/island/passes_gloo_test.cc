// The same between processes, over sockets, where a collective that one worker leaves out or starts in another order
// hangs. That the result is right is for passes_test.cc to tell.

#include <gtest/gtest.h>

#include "island/passes.h"
#include "support/processes.h"

namespace co2 {
namespace {

TEST(PassesOverGloo, MayDifferBetweenWorkers) {
  test::run_processes(
      2,
      [](int) {
        at::set_num_threads(1);  // more would wait for each other, as there are several processes
        const Cluster cluster = Cluster::from_environment({.collective_timeout = std::chrono::seconds(20)});
        for (const test::PassesCase& passes : test::passes_cases()) {
          try {
            test::train_case(passes, cluster, 3);
          } catch (const std::exception& error) {
            throw std::runtime_error(passes.name + ": " + error.what());
          }
        }
      },
      std::chrono::seconds(120));
}

}  // namespace
}  // namespace co2
