#include "island/island.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "flat/shard.h"

namespace co2 {

Island::Island(const Cluster& cluster, int size, std::shared_ptr<Communicator> all) : cluster_(cluster) {
  if (size == 1) {
    across_ = std::move(all);
    across_control_ = cluster.communicator("across control");
    return;
  }
  std::vector<int> across;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    if (rank / size == cluster.rank() / size) ranks_.push_back(rank);
    if (rank % size == cluster.rank() % size) across.push_back(rank);
  }
  inside_ = cluster.communicator("island", ranks_);
  across_ = cluster.communicator("across", across);
  across_control_ = cluster.communicator("across control", across);
}

std::shared_ptr<Communicator> Island::another_group(const std::string& name) const {
  return inside_ ? cluster_.communicator(name, ranks_) : nullptr;
}

double Island::sum(double value) const {
  if (!inside_) return value;
  const at::Tensor total = at::full({1}, value, at::kDouble);
  inside_->all_reduce(total, ReduceOp::kSum)->wait();
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
