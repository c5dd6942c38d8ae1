// What workers do with a model's units may differ: ranks as threads, which notice if they gather different ones.

#include <gtest/gtest.h>

#include "island/passes.h"
#include "support/workers.h"

namespace co2 {
namespace {

TEST(Passes, MayDifferBetweenWorkers) {
  for (const test::PassesCase& passes : test::passes_cases()) {
    SCOPED_TRACE(passes.name);
    const auto run = [&](int stage) {
      at::Tensor result;
      test::run_workers(2, [&](const Cluster& cluster) {
        const at::Tensor mine = test::train_case(passes, cluster, stage);
        if (cluster.rank() == 0) result = mine;
      });
      return result;
    };
    const at::Tensor reference = run(0);
    for (const int stage : {2, 3}) {
      EXPECT_TRUE(at::allclose(run(stage), reference, 1e-4, 1e-5)) << "stage " << stage;
    }
  }
}

}  // namespace
}  // namespace co2
