#include "flat/shard.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace co2 {

Range part_of(const Range& unit, int rank, int parts) {
  const std::int64_t size = unit.size() / parts;  // FlatParameters makes units divisible
  return {unit.begin + rank * size, unit.begin + (rank + 1) * size};
}

Range part_in_shard(const Range& unit, int parts) { return {unit.begin / parts, unit.end / parts}; }

Shard::Shard(const FlatParameters& flat, int rank) {
  std::int64_t local = 0;
  for (const Range& unit : flat.units()) {
    const Range part = part_of(unit, rank, flat.parts());
    for (const auto& [stretch, group] : flat.stretches()) {
      const Range common{std::max(part.begin, stretch.begin), std::min(part.end, stretch.end)};
      if (common.size() <= 0) continue;
      Segment* last = segments_.empty() ? nullptr : &segments_.back();
      if (last != nullptr && last->group == group && last->flat.end == common.begin) {
        last->flat.end = common.end;
        last->local.end += common.size();
      } else {
        segments_.push_back({{local, local + common.size()}, common, group});
      }
      local += common.size();
    }
  }
}

std::vector<Shard::Segment> Shard::segments_of(const Range& local) const {
  std::vector<Segment> result;
  for (const Segment& segment : segments_) {
    const Range common{std::max(local.begin, segment.local.begin), std::min(local.end, segment.local.end)};
    if (common.size() <= 0) continue;
    const std::int64_t shift = segment.flat.begin - segment.local.begin;
    result.push_back({common, {common.begin + shift, common.end + shift}, segment.group});
  }
  return result;
}

std::vector<Range> Shard::fragments(int count) const {
  const std::int64_t lines = numel() / FlatParameters::kAlignment;
  std::vector<Range> ranges;
  for (std::int64_t f = 0; f < count; ++f) {
    ranges.push_back(
        {FlatParameters::kAlignment * (f * lines / count), FlatParameters::kAlignment * ((f + 1) * lines / count)});
  }
  return ranges;
}

at::Tensor Shard::view(const at::Tensor& buffer, const Segment& segment) const {
  const Range& range = buffer.numel() == numel() ? segment.local : segment.flat;
  return buffer.narrow(0, range.begin, range.size());
}

at::Tensor Shard::copy_of(const at::Tensor& buffer, const Range& local) const {
  at::Tensor values = at::empty({local.size()}, buffer.options());
  for (const Segment& s : segments_of(local)) {
    values.narrow(0, s.local.begin - local.begin, s.local.size()).copy_(view(buffer, s));
  }
  return values;
}

void Shard::write_to(const at::Tensor& buffer, const at::Tensor& values, const Range& local) const {
  for (const Segment& s : segments_of(local)) {
    view(buffer, s).copy_(values.narrow(0, s.local.begin - local.begin, s.local.size()));
  }
}

}  // namespace co2
