#pragma once

/// For programs that have process groups of their own; not part of co2.h, because it includes c10d.
#include <co2/cluster.h>
#include <co2/communicator.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace co2 {

/// Collectives over a group of yours. If it has only some of the cluster's workers, `ranks` tells which, in the order
/// of the group: errors then name workers as the cluster does.
std::shared_ptr<Communicator> communicator_over(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                std::vector<int> ranks = {});

/// Makes one more group, of the given ranks, with connections of its own. All workers ask for the same names in the
/// same order, those that name the same ranks meet; only these call it.
using MakeProcessGroup =
    std::function<c10::intrusive_ptr<c10d::ProcessGroup>(const std::string& name, const std::vector<int>& ranks)>;

/// The workers of a process group that you have made: parameters and gradients of all workers travel over `group`. The
/// other groups that it takes (small numbers, islands) are Gloo's, made through the store that `group` was made with;
/// `options` tells the interface and the timeout of these.
Cluster cluster_over(c10::intrusive_ptr<c10d::ProcessGroup> group, const ClusterOptions& options = {});

/// The same with groups that you make: `bulk` for what is on the model's device, `control`, of a CPU backend, for small
/// numbers. Either makes groups anew; the first bulk group of all workers is `group`.
Cluster cluster_over(c10::intrusive_ptr<c10d::ProcessGroup> group, MakeProcessGroup bulk, MakeProcessGroup control);

}  // namespace co2
