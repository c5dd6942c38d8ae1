#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "flat/flat_parameters.h"

namespace co2 {

/// The part of a flat buffer that one worker of an island answers for: part r of every unit. The same for the exchange
/// between islands and for ZeRO inside one. Alone in its island, a worker has everything.
///
/// Invariant: the shards of an island are of equal size, and together cover every element of the buffer exactly once.
class Shard {
 public:
  /// A stretch that is contiguous in the buffer and belongs to one parameter group.
  struct Segment {
    Range local;  ///< in the shard: consecutive, covering all of it
    Range flat;   ///< in the buffer
    std::size_t group = 0;
  };

  Shard(const FlatParameters& flat, int rank);

  std::int64_t numel() const { return segments_.empty() ? 0 : segments_.back().local.end; }
  const std::vector<Segment>& segments() const { return segments_; }
  /// The stretches of a part of the shard.
  std::vector<Segment> segments_of(const Range& local) const;

  /// Cuts the shard into `count` consecutive fragments of about equal size, at multiples of FlatParameters::kAlignment.
  /// Some are empty if there are more fragments than there is data.
  std::vector<Range> fragments(int count) const;

  /// Where a segment is in `buffer`, which has either the layout of the flat parameters or that of the shard.
  at::Tensor view(const at::Tensor& buffer, const Segment& segment) const;
  /// A copy of what such a buffer holds in a part of the shard, and the way back.
  at::Tensor copy_of(const at::Tensor& buffer, const Range& local) const;
  at::Tensor copy_of(const at::Tensor& buffer) const { return copy_of(buffer, {0, numel()}); }
  void write_to(const at::Tensor& buffer, const at::Tensor& values, const Range& local) const;

 private:
  std::vector<Segment> segments_;
};

/// Part `rank` of a unit that is shared by `parts` workers.
Range part_of(const Range& unit, int rank, int parts);
/// Where that part is in the shard, the same for all ranks.
Range part_in_shard(const Range& unit, int parts);

}  // namespace co2
