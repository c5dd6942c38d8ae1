#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/c10d_group.h"

namespace co2::doctor {

/// A way between two workers that does not work.
struct Unreachable {
  int from = 0;
  int to = 0;
  std::string address;  ///< where `to` was listening
  std::string why;
};

/// Every worker opens a port on its own address and tries to connect to every other worker's, as Gloo will do. Returns
/// all pairs that failed, the same on all workers. A collective over the job's store, which must be up; takes at most
/// the rendezvous timeout, and throws ClusterError if a worker does not take part in that time.
///
/// The store is the launcher's or rank 0's; this connects to it once more, beside the cluster.
class Reach {
 public:
  Reach(const Rendezvous& rendezvous, const std::string& own_address);
  ~Reach();
  std::vector<Unreachable> check();

  /// Every worker's text, by rank: the only way to talk while there is no group.
  std::vector<std::string> exchange(const std::string& mine);

  /// Waits for the others: rank 0, which may have something to tell the user first, until they have left, and they for
  /// rank 0. A launcher ends all workers when one has failed.
  void leave();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace co2::doctor
