#pragma once

#include <c10/util/intrusive_ptr.h>
#include <co2/communicator.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace co2 {

/// Collectives over a group that somebody has made; `ranks`: of its workers in the cluster, empty if these are all.
std::shared_ptr<Communicator> communicator_over(c10::intrusive_ptr<c10d::ProcessGroup> group, std::vector<int> ranks);

/// Where and how the workers of a job find each other.
struct Rendezvous {
  std::string host;
  int port = 0;
  int rank = 0;
  int size = 1;
  bool store_exists = false;  ///< the launcher serves the store already (torchrun), nobody else may
  int listen_fd = -1;         ///< rank 0: an open socket for the store (co2 launch), or -1
  std::string generation;     ///< distinguishes restarts of one job that share a store
  std::string interface;      ///< network interface for the groups; empty: choose by `address`
  std::string address;        ///< this worker's own address, used if there is no interface
  std::chrono::milliseconds rendezvous_timeout{300'000};
  std::chrono::milliseconds collective_timeout{600'000};
};

/// One more client of a job's store, for workers that must talk before they can form a group. Every wait is bounded by
/// the rendezvous timeout.
class StoreClient {
 public:
  /// Throws ClusterError if the store is not there.
  explicit StoreClient(const Rendezvous& rendezvous);
  ~StoreClient();
  StoreClient(StoreClient&&) noexcept;

  void set(const std::string& key, const std::string& text);
  /// Waits until somebody has set it; empty if nobody does in time.
  std::optional<std::string> get(const std::string& key);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The c10d backend: a TCP store, and process groups (Gloo) made through it. The only place that knows c10d.
class C10dGroups {
 public:
  /// Connects to the store; rank 0 serves it. Throws ClusterError.
  explicit C10dGroups(Rendezvous rendezvous);
  /// The same through a store that is there already. Of `place` only rank, size, interface and timeout count.
  C10dGroups(Rendezvous place, c10::intrusive_ptr<c10d::Store> store);
  ~C10dGroups();

  /// A new group of some ranks, with connections of its own; `place` is this worker's among them.
  std::shared_ptr<Communicator> make(const std::string& name, const std::vector<int>& ranks, int place);

 private:
  void check_reachable() const;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace co2
