#pragma once

#include <co2/cluster.h>
#include <co2/trace.h>

#include <memory>
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
  const std::shared_ptr<Communicator>& across() const { return across_; }

  /// The sum over the island, blocking.
  double sum(double value) const;

  /// Gives everybody in the island the owners' values of all units that overlap with `changed`, parts of a shard, in a
  /// buffer with the layout of the flat parameters. Blocking.
  void share(const FlatParameters& flat, const at::Tensor& buffer, const std::vector<Range>& changed,
             std::int64_t round, Trace& trace) const;

 private:
  std::shared_ptr<Communicator> inside_;
  std::shared_ptr<Communicator> across_;
};

}  // namespace co2
