#include "island/one_by_one.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "flat/shard.h"

namespace co2 {

namespace {

/// The elements of a parameter that one worker of an island keeps.
struct Kept {
  Range of_parameter;
  Range in_shard;
};

Kept kept_by(int rank, const FlatParameters& flat, std::size_t i) {
  const Range where = flat.where(i);
  if (where.size() == 0) return {};
  const Range& unit = flat.units()[flat.unit_of(i)];
  const Range part = part_of(unit, rank, flat.parts());
  const Range common{std::max(part.begin, where.begin), std::min(part.end, where.end)};
  if (common.size() <= 0) return {};
  const std::int64_t shift = part_in_shard(unit, flat.parts()).begin - part.begin;
  return {{common.begin - where.begin, common.end - where.begin}, {common.begin + shift, common.end + shift}};
}

at::Tensor narrowed(const at::Tensor& buffer, const Range& range) {
  return buffer.narrow(0, range.begin, range.size());
}

}  // namespace

at::Tensor gather_parameter(const Island& island, const FlatParameters& flat, const at::Tensor& live, std::size_t i) {
  const Range where = flat.where(i);
  if (live.numel() == flat.numel()) return narrowed(live, where);
  at::Tensor whole = at::empty({where.size()}, live.options());
  for (int rank = 0; rank < flat.parts(); ++rank) {
    const Kept kept = kept_by(rank, flat, i);
    if (kept.of_parameter.size() == 0) continue;
    const at::Tensor part = narrowed(whole, kept.of_parameter);
    if (rank == island.rank()) part.copy_(narrowed(live, kept.in_shard));
    island.inside()->broadcast(part, rank)->wait();
  }
  return whole;
}

void keep_part(const Island& island, const FlatParameters& flat, const at::Tensor& live, std::size_t i,
               const at::Tensor& elements) {
  const Kept kept = kept_by(island.rank(), flat, i);
  narrowed(live, kept.in_shard).copy_(narrowed(elements, kept.of_parameter));
}

}  // namespace co2
