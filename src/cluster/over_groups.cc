#include <co2/c10d.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <utility>

#include "comm/c10d_group.h"

namespace co2 {

namespace {

void check_usable(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if (!group) throw OptionError("there is no process group: make one first");
  if (!group->hasBackends()) {
    throw OptionError(
        "the process group has no backend, so it can't carry anything: give it one with setBackend(), or take one that "
        "has not been destroyed");
  }
}

/// The first group of tensors between all workers is the one that was given.
GivenGroups with_first(const c10::intrusive_ptr<c10d::ProcessGroup>& group, decltype(GivenGroups::make) others) {
  GivenGroups groups{.rank = group->getRank(), .size = group->getSize()};
  groups.make = [group, others = std::move(others), taken = std::make_shared<bool>(false)](
                    const std::string& name, const std::vector<int>& ranks, int place, Carries what) {
    const bool of_all = static_cast<int>(ranks.size()) == group->getSize();
    if (what == Carries::kTensors && of_all && !std::exchange(*taken, true)) return communicator_over(group);
    return others(name, ranks, place, what);
  };
  return groups;
}

}  // namespace

Cluster cluster_over(c10::intrusive_ptr<c10d::ProcessGroup> group, const ClusterOptions& options) {
  check_usable(group);
  if (!group->getStore()) {
    throw OptionError(
        "the process group has no store through which more groups could be made: make it with one, or give "
        "cluster_over() functions that make groups");
  }
  Rendezvous place;
  place.rank = group->getRank();
  place.size = group->getSize();
  place.interface = options.interface;
  place.collective_timeout = options.collective_timeout;
  auto made = std::make_shared<C10dGroups>(place, group->getStore());
  return Cluster::over(with_first(group, [made](const std::string& name, const std::vector<int>& ranks, int rank,
                                                Carries) { return made->make(name, ranks, rank); }));
}

Cluster cluster_over(c10::intrusive_ptr<c10d::ProcessGroup> group, MakeProcessGroup bulk, MakeProcessGroup control) {
  check_usable(group);
  if (!bulk || !control) throw OptionError("cluster_over() needs functions for both kinds of groups");
  return Cluster::over(
      with_first(group, [bulk = std::move(bulk), control = std::move(control)](
                            const std::string& name, const std::vector<int>& ranks, int, Carries what) {
        auto made = what == Carries::kTensors ? bulk(name, ranks) : control(name, ranks);
        if (!made || made->getSize() != static_cast<int>(ranks.size())) {
          throw ClusterError(
              fmt::format("the function that makes groups has made none of {} workers for '{}'", ranks.size(), name));
        }
        auto communicator = communicator_over(std::move(made), ranks);
        if (what == Carries::kNumbers && !communicator->carries(c10::DeviceType::CPU)) {
          throw ClusterError(
              fmt::format("the group for '{}' ({}) can't carry numbers in host memory: make it of a CPU "
                          "backend, such as gloo",
                          name, communicator->backend()));
        }
        return communicator;
      }));
}

}  // namespace co2
