#pragma once

#include <co2/options.h>

#include <cstdint>
#include <vector>

#include "base/range.h"

namespace co2 {

/// Where the blocks of a fragment are among the parts that its owners add up. Each stretch of the fragment begins a
/// block of its own, and fills its last one up with zeros; the blocks of all stretches, one after the other, are cut
/// into equal parts, one per worker. A part on the wire is a header, and blocks.
///
/// A pure function of numbers that all workers share.
class BlockLayout {
 public:
  static constexpr std::int64_t kHeaderBytes = 16;

  BlockLayout(std::vector<Range> stretches, Wire wire, int workers);

  /// Elements whose blocks lie side by side: of one stretch, in one part.
  struct Piece {
    Range range;             ///< of elements, within the fragment
    std::int64_t begin = 0;  ///< its first byte, counted from the beginning of the first part
    std::int64_t bytes = 0;
  };
  std::vector<Piece> of_stretch(std::size_t stretch) const;
  /// Those of a part, with bytes counted from the part's own beginning.
  std::vector<Piece> of_part(int part) const;

  const std::vector<Range>& stretches() const { return stretches_; }
  Wire wire() const { return wire_; }
  std::int64_t part_bytes() const { return kHeaderBytes + part_blocks_ * block_bytes_; }
  std::int64_t all_bytes() const { return workers_ * part_bytes(); }

 private:
  std::vector<Range> stretches_;
  std::vector<std::int64_t> first_block_;  // of each stretch
  Wire wire_;
  int workers_;
  std::int64_t block_bytes_;
  std::int64_t part_blocks_;
};

}  // namespace co2
