#include <co2/cluster.h>
#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <tuple>

#include "cluster/environment.h"
#include "comm/c10d_group.h"
#include "comm/in_process.h"

namespace co2 {

namespace {

/// Groups of workers that are threads, by name: the first rank to ask makes one, the others join it.
///
/// Thread safety: every member may be called from any thread.
class InProcessHub {
 public:
  InProcessHub(int size, std::chrono::milliseconds timeout, std::function<void()> before_collective)
      : timeout_(timeout), before_collective_(std::move(before_collective)), gone_(static_cast<std::size_t>(size)) {}

  std::shared_ptr<Communicator> join(const std::string& name, const std::vector<int>& ranks, int place_in_group,
                                     Carries /*what*/) {
    const auto size = static_cast<int>(ranks.size());
    const int rank = ranks[static_cast<std::size_t>(place_in_group)];
    const std::lock_guard lock(mutex_);
    // A rank that asks for a name again wants another group, whether or not the others have come for the first one.
    auto [place, added] = groups_.try_emplace({name, ranks, asked_[{name, ranks, rank}]++});
    Entry& entry = place->second;
    if (added) {
      entry = {std::make_shared<InProcessGroup>(ranks, timeout_, before_collective_), {}};
      for (int i = 0; i < size; ++i) {
        if (gone_[static_cast<std::size_t>(ranks[static_cast<std::size_t>(i)])]) entry.group->leave(i);
      }
    }
    auto communicator = entry.group->join(place_in_group);
    entry.joined.insert(rank);
    // The group then lives as long as its members.
    if (entry.joined.size() == ranks.size()) groups_.erase(place);
    return communicator;
  }

  /// Nobody is left who could join as this rank.
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    gone_[static_cast<std::size_t>(rank)] = true;
    for (auto& [key, entry] : groups_) {
      const std::vector<int>& ranks = std::get<1>(key);
      const auto place = std::find(ranks.begin(), ranks.end(), rank);
      if (place != ranks.end() && !entry.joined.contains(rank)) {
        entry.group->leave(static_cast<int>(place - ranks.begin()));
      }
    }
  }

 private:
  struct Entry {
    std::shared_ptr<InProcessGroup> group;
    std::set<int> joined;  // ranks
  };
  const std::chrono::milliseconds timeout_;
  const std::function<void()> before_collective_;
  std::mutex mutex_;
  std::vector<bool> gone_;
  std::map<std::tuple<std::string, std::vector<int>, int>, Entry> groups_;  // the last: how many there were before it
  std::map<std::tuple<std::string, std::vector<int>, int>, int> asked_;     // the last: who asked
};

}  // namespace

struct Cluster::Impl {
  std::string launcher;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  decltype(GivenGroups::make) make_communicator;
  std::function<void()> at_end;  ///< of the last handle

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (at_end) at_end();
  }
};

Cluster::Cluster(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Cluster Cluster::from_environment(const ClusterOptions& options) {
  Placement placement = read_placement(options);
  Rendezvous& r = placement.rendezvous;
  auto impl = std::make_shared<Impl>();
  impl->launcher = placement.launcher;
  impl->rank = r.rank;
  impl->size = r.size;
  impl->local_rank = placement.local_rank;
  impl->local_size = placement.local_size;
  if (r.size == 1) {
    auto hub = std::make_shared<InProcessHub>(1, options.collective_timeout, nullptr);
    impl->make_communicator = [hub](const auto&... which) { return hub->join(which...); };
    return Cluster(std::move(impl));
  }
  if (r.interface.empty()) r.address = local_address_towards(r.host);
  auto groups = std::make_shared<C10dGroups>(r);
  impl->make_communicator = [groups](const auto& name, const auto& ranks, int place, Carries) {
    return groups->make(name, ranks, place);
  };
  return Cluster(std::move(impl));
}

Cluster Cluster::over(GivenGroups groups) {
  const auto check = [](const char* what, int rank, int size) {
    if (size >= 1 && rank >= 0 && rank < size) return;
    throw OptionError(fmt::format(
        "{} = {} of {} workers is not allowed: it must be from 0 to one less than their number", what, rank, size));
  };
  check("rank", groups.rank, groups.size);
  check("local_rank", groups.local_rank, groups.local_size);
  if (!groups.make) throw OptionError("there is no function that makes groups: set GivenGroups::make");
  auto impl = std::make_shared<Impl>();
  impl->launcher = "given";
  impl->rank = groups.rank;
  impl->size = groups.size;
  impl->local_rank = groups.local_rank;
  impl->local_size = groups.local_size;
  impl->make_communicator = std::move(groups.make);
  return Cluster(std::move(impl));
}

Cluster Cluster::alone() {
  Cluster cluster = in_process(1).front();
  cluster.impl_->launcher = "alone";
  return cluster;
}

std::vector<Cluster> Cluster::in_process(int size, std::function<void()> before_collective,
                                         std::chrono::milliseconds collective_timeout) {
  if (size < 1) throw OptionError(fmt::format("workers = {} is not allowed: it must be at least 1", size));
  if (collective_timeout.count() <= 0) {
    throw OptionError(
        fmt::format("collective_timeout = {} ms is not allowed: it must be positive", collective_timeout.count()));
  }
  auto hub = std::make_shared<InProcessHub>(size, collective_timeout, std::move(before_collective));
  std::vector<Cluster> clusters;
  for (int rank = 0; rank < size; ++rank) {
    auto impl = std::make_shared<Impl>();
    impl->launcher = "in-process";
    impl->rank = impl->local_rank = rank;
    impl->size = impl->local_size = size;
    impl->make_communicator = [hub](const auto&... which) { return hub->join(which...); };
    impl->at_end = [hub, rank] { hub->leave(rank); };
    clusters.emplace_back(Cluster(std::move(impl)));
  }
  return clusters;
}

int Cluster::rank() const { return impl_->rank; }
int Cluster::size() const { return impl_->size; }
int Cluster::local_rank() const { return impl_->local_rank; }
int Cluster::local_size() const { return impl_->local_size; }
const std::string& Cluster::launcher() const { return impl_->launcher; }

std::shared_ptr<Communicator> Cluster::communicator(const std::string& name, Carries what) const {
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  return communicator(name, all, what);
}

std::shared_ptr<Communicator> Cluster::communicator(const std::string& name, const std::vector<int>& ranks,
                                                    Carries what) const {
  const auto mine = std::find(ranks.begin(), ranks.end(), rank());
  const bool valid = mine != ranks.end() && std::all_of(ranks.begin(), ranks.end(), [&](int r) {
                       return r >= 0 && r < size() && std::count(ranks.begin(), ranks.end(), r) == 1;
                     });
  if (!valid) {
    throw OptionError(
        fmt::format("ranks = {} is not allowed for the group {} of rank {}: they must be different, from 0 "
                    "to {}, and include the worker itself",
                    fmt::join(ranks, ","), name, rank(), size() - 1));
  }
  auto made = impl_->make_communicator(name, ranks, static_cast<int>(mine - ranks.begin()), what);
  if (!made) throw ClusterError(fmt::format("the function that makes groups has made none for '{}'", name));
  return made;
}

}  // namespace co2
