#include "sync/block_layout.h"

#include <algorithm>
#include <utility>

#include "outer/blocks.h"

namespace co2 {

BlockLayout::BlockLayout(std::vector<Range> stretches, Wire wire, int workers)
    : stretches_(std::move(stretches)), wire_(wire), workers_(workers), block_bytes_(outer::block_bytes(wire)) {
  std::int64_t blocks = 0;
  for (const Range& stretch : stretches_) {
    first_block_.push_back(blocks);
    blocks += outer::blocks_for(stretch.size());
  }
  part_blocks_ = (blocks + workers - 1) / workers;
}

std::vector<BlockLayout::Piece> BlockLayout::of_stretch(std::size_t index) const {
  std::vector<Piece> pieces;
  const Range& stretch = stretches_[index];
  const std::int64_t end = first_block_[index] + outer::blocks_for(stretch.size());
  for (std::int64_t block = first_block_[index]; block < end;) {
    const std::int64_t part = block / part_blocks_;
    const std::int64_t next = std::min(end, (part + 1) * part_blocks_);
    Piece piece;
    piece.range.begin = stretch.begin + (block - first_block_[index]) * outer::kBlock;
    piece.range.end = std::min(stretch.end, stretch.begin + (next - first_block_[index]) * outer::kBlock);
    piece.begin = part * part_bytes() + kHeaderBytes + (block - part * part_blocks_) * block_bytes_;
    piece.bytes = (next - block) * block_bytes_;
    pieces.push_back(piece);
    block = next;
  }
  return pieces;
}

std::vector<BlockLayout::Piece> BlockLayout::of_part(int part) const {
  std::vector<Piece> pieces;
  const Range bytes{part * part_bytes(), (part + 1) * part_bytes()};
  for (std::size_t i = 0; i < stretches_.size(); ++i) {
    for (Piece piece : of_stretch(i)) {
      if (piece.begin < bytes.begin || piece.begin >= bytes.end) continue;
      piece.begin -= bytes.begin;
      pieces.push_back(piece);
    }
  }
  return pieces;
}

}  // namespace co2
