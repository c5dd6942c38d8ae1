#include "shard/island.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "flat/shard.h"
#include "sync/transfer.h"

namespace co2 {

Island::Island(const Cluster& cluster, int size, std::shared_ptr<Communicator> all) {
  if (size == 1) {
    across_ = std::move(all);
    return;
  }
  std::vector<int> inside;
  std::vector<int> across;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    if (rank / size == cluster.rank() / size) inside.push_back(rank);
    if (rank % size == cluster.rank() % size) across.push_back(rank);
  }
  inside_ = cluster.communicator("island", inside);
  across_ = cluster.communicator("across", across);
}

double Island::sum(double value) const {
  if (!inside_) return value;
  const at::Tensor total = at::full({1}, value, at::kDouble);
  inside_->all_reduce(total, ReduceOp::kSum)->wait();
  return total.item<double>();
}

void Island::share(const FlatParameters& flat, const at::Tensor& buffer, const std::vector<Range>& changed,
                   std::int64_t round, Trace& trace) const {
  if (!inside_) return;
  std::vector<WorkPtr> works;
  std::int64_t bytes = 0;
  std::int64_t local = 0;
  for (const Range& unit : flat.units()) {
    const Range mine = part_of(unit, rank(), size());
    const Range in_shard{local, local + mine.size()};
    local = in_shard.end;
    const bool touched = std::any_of(changed.begin(), changed.end(), [&](const Range& range) {
      return range.begin < in_shard.end && in_shard.begin < range.end;
    });
    if (!touched) continue;
    works.push_back(
        inside_->all_gather(buffer.narrow(0, unit.begin, unit.size()), buffer.narrow(0, mine.begin, mine.size())));
    bytes += (size() - 1) * mine.size() * buffer.element_size();
  }
  if (!works.empty()) wait_for_transfer(works, bytes, round, -1, trace);
}

}  // namespace co2
