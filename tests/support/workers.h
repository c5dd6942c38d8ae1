#pragma once

#include <co2/cluster.h>

#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace co2::test {

/// Runs `body` once per worker, each on a thread of its own, and rethrows the first exception (by rank).
inline void run_workers(std::vector<Cluster> clusters, const std::function<void(const Cluster&)>& body) {
  std::vector<std::exception_ptr> failures(clusters.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < clusters.size(); ++r) {
    threads.emplace_back([&, r, cluster = std::move(clusters[r])]() mutable {
      try {
        body(cluster);
      } catch (...) {
        failures[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

inline void run_workers(int size, const std::function<void(const Cluster&)>& body) {
  run_workers(Cluster::in_process(size), body);
}

}  // namespace co2::test
