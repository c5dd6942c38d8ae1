#pragma once

#include <co2/cluster.h>

#include <memory>
#include <string>
#include <vector>

#include "flat/flat_parameters.h"

namespace co2 {

/// Workers that train synchronously, over a fast network: ranks [iK, (i+1)K). Worker r of every island exchanges its
/// shard of the progress with the workers r of the others.
///
/// Thread safety: used by the training thread.
class Island {
 public:
  /// `size` divides the number of workers; `all` is the group of all of them.
  Island(const Cluster& cluster, int size, std::shared_ptr<Communicator> all);

  int size() const { return inside_ ? inside_->size() : 1; }
  int rank() const { return inside_ ? inside_->rank() : 0; }               ///< in the island
  const std::shared_ptr<Communicator>& inside() const { return inside_; }  ///< null if every worker is an island
  /// The same workers, for small numbers that must not queue behind gradients.
  const std::shared_ptr<Communicator>& inside_control() const { return inside_control_; }
  const std::shared_ptr<Communicator>& across() const { return across_; }
  /// The same workers as across(), for small numbers that must not queue behind a transfer.
  const std::shared_ptr<Communicator>& across_control() const { return across_control_; }

  /// Another group for tensors inside the island: what it carries and what inside() does need no common order.
  /// Collective. Null for an island of one.
  std::shared_ptr<Communicator> another_inside(const std::string& name) const;
  /// The same for across().
  std::shared_ptr<Communicator> another_across(const std::string& name) const;

  /// The sum over the island, blocking.
  double sum(double value) const;

  /// The units that overlap with `changed`, parts of a shard.
  std::vector<std::size_t> units_in(const FlatParameters& flat, const std::vector<Range>& changed) const;
  /// Starts to give everybody in the island the owners' values of a unit, in a buffer with the layout of the flat
  /// parameters. Not for an island of one.
  WorkPtr gather(const FlatParameters& flat, const at::Tensor& buffer, std::size_t unit) const;

 private:
  Cluster cluster_;
  std::vector<int> ranks_;         // of this island
  std::vector<int> across_ranks_;  // of the workers with the same shard
  std::shared_ptr<Communicator> inside_;
  std::shared_ptr<Communicator> inside_control_;
  std::shared_ptr<Communicator> across_;
  std::shared_ptr<Communicator> across_control_;
};

}  // namespace co2
