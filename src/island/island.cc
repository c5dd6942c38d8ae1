#include "island/island.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "flat/shard.h"

namespace co2 {

Island::Island(const Cluster& cluster, int size, std::shared_ptr<Communicator> all) : cluster_(cluster) {
  for (int rank = 0; rank < cluster.size(); ++rank) {
    if (rank / size == cluster.rank() / size) ranks_.push_back(rank);
    if (rank % size == cluster.rank() % size) across_ranks_.push_back(rank);
  }
  across_control_ = cluster.communicator("across control", across_ranks_);
  if (size == 1) {
    across_ = std::move(all);
    return;
  }
  // Where all workers are one island, it needs no further connections for tensors.
  inside_ = size == cluster.size() ? std::move(all) : cluster.communicator("island", ranks_, Carries::kTensors);
  inside_control_ = cluster.communicator("island control", ranks_);
  across_ = cluster.communicator("across", across_ranks_, Carries::kTensors);
}

std::shared_ptr<Communicator> Island::another_inside(const std::string& name) const {
  return inside_ ? cluster_.communicator(name, ranks_, Carries::kTensors) : nullptr;
}

std::shared_ptr<Communicator> Island::another_across(const std::string& name) const {
  return cluster_.communicator(name, across_ranks_, Carries::kTensors);
}

double Island::sum(double value) const {
  if (!inside_) return value;
  const at::Tensor total = at::full({1}, value, at::kDouble);
  inside_control_->all_reduce(total, ReduceOp::kSum)->wait();
  return total.item<double>();
}

std::vector<std::size_t> Island::units_in(const FlatParameters& flat, const std::vector<Range>& changed) const {
  std::vector<std::size_t> units;
  for (std::size_t u = 0; u < flat.units().size(); ++u) {
    const Range part = part_in_shard(flat.units()[u], size());
    const bool touched = std::any_of(changed.begin(), changed.end(), [&](const Range& range) {
      return range.begin < part.end && part.begin < range.end;
    });
    if (touched) units.push_back(u);
  }
  return units;
}

WorkPtr Island::gather(const FlatParameters& flat, const at::Tensor& buffer, std::size_t unit) const {
  const Range& range = flat.units()[unit];
  const Range mine = part_of(range, rank(), size());
  return inside_->all_gather(buffer.narrow(0, range.begin, range.size()), buffer.narrow(0, mine.begin, mine.size()));
}

}  // namespace co2
