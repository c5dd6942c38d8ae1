#include "train/virtual_workers.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace co2::train {

namespace {

/// Of several workers that fail, all but the first do so because it is gone.
class FirstException {
 public:
  void keep(std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = std::move(exception);
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace

RunResult run_virtual_workers(const TrainConfig& config, const RunHooks& hooks) {
  FirstException failure;
  RunResult result;
  std::vector<std::thread> threads;
  for (Cluster& each : Cluster::in_process(config.workers)) {
    // The handle ends with the thread: as long as there is one, the others would wait for a worker that has failed.
    threads.emplace_back([&, cluster = std::move(each)] {
      at::set_num_threads(std::max(1, config.threads));  // OpenMP counts for each thread that computes
      try {
        RunResult own = run(config, cluster, hooks);
        if (cluster.rank() == 0) result = std::move(own);
      } catch (...) {
        failure.keep(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  failure.rethrow();
  return result;
}

}  // namespace co2::train
