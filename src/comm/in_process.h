#pragma once

#include <co2/communicator.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace co2 {

/// A group whose ranks are threads of this process: all of a cluster's, or some of them. One background thread
/// carries out the collectives, in the order in which they were started, once every rank has joined one. Sums are
/// taken in order of rank, so results repeat bit for bit.
///
/// Thread safety: each rank's Communicator is used by that rank's thread; ranks run concurrently.
/// Lifetime: the thread ends with the last Communicator. A rank whose Communicator is destroyed has left: collectives
/// that still need it fail with a CommError on the others instead of hanging. So do those that are not over after
/// `timeout`, because a rank never starts them.
class InProcessGroup {
 public:
  /// `ranks`: of its members in the cluster.
  InProcessGroup(std::vector<int> ranks, std::chrono::milliseconds timeout, std::function<void()> before_collective);
  /// The communicator of one rank of the group; each rank takes it once.
  std::shared_ptr<Communicator> join(int rank);
  /// In place of join(): this rank will never come.
  void leave(int rank);

  class Engine;

 private:
  std::shared_ptr<Engine> engine_;
};

}  // namespace co2
