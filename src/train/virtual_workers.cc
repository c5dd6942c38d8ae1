#include "train/virtual_workers.h"

#include <ATen/Parallel.h>
#include <co2/error.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/group.h"

namespace co2::train {

namespace {

/// Why a run failed: of several workers' errors, the first that is not about another worker.
class Failure {
 public:
  void keep(const std::exception_ptr& exception, bool of_another) {
    const std::lock_guard lock(mutex_);
    std::exception_ptr& first = of_another ? consequence_ : cause_;
    if (!first) first = exception;
  }
  void rethrow() const {
    if (cause_) std::rethrow_exception(cause_);
    if (consequence_) std::rethrow_exception(consequence_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr cause_;
  std::exception_ptr consequence_;
};

}  // namespace

RunResult run_virtual_workers(const TrainConfig& config, const RunHooks& hooks) {
  Failure failure;
  RunResult result;
  std::vector<std::thread> threads;
  for (Cluster& each : Cluster::in_process(config.workers, {}, config.cluster.collective_timeout)) {
    // The handle ends with the thread: as long as there is one, the others would wait for a worker that has failed.
    threads.emplace_back([&, cluster = std::move(each)] {
      at::set_num_threads(std::max(1, config.threads));  // OpenMP counts for each thread that computes
      try {
        RunResult own = run(config, cluster, hooks);
        if (cluster.rank() == 0) result = std::move(own);
      } catch (const OtherFailed&) {
        failure.keep(std::current_exception(), true);
      } catch (const CommError&) {  // in one process, nothing but a worker that is gone can break a collective
        failure.keep(std::current_exception(), true);
      } catch (...) {
        failure.keep(std::current_exception(), false);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  failure.rethrow();
  return result;
}

}  // namespace co2::train
