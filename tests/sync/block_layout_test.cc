#include "sync/block_layout.h"

#include <gtest/gtest.h>

#include <numeric>

#include "outer/blocks.h"

namespace co2 {
namespace {

// Whatever the stretches: every element is in exactly one piece, pieces begin with a block, and they share no byte.
TEST(BlockLayout, EveryElementHasItsPlace) {
  const std::vector<std::vector<Range>> cuts = {{},
                                                {{0, 0}},
                                                {{0, 1}},
                                                {{0, 64}},
                                                {{0, 65}},
                                                {{0, 10}, {10, 10}, {10, 11}},
                                                {{0, 1000}, {1000, 1001}, {1001, 5000}}};
  for (const auto& stretches : cuts) {
    for (const int workers : {1, 2, 3, 7}) {
      for (const Wire wire : {Wire::kInt8, Wire::kInt4, Wire::kInt2}) {
        const BlockLayout layout(stretches, wire, workers);
        std::vector<int> elements(static_cast<std::size_t>(stretches.empty() ? 0 : stretches.back().end));
        std::vector<int> bytes(static_cast<std::size_t>(layout.all_bytes()));
        for (std::size_t i = 0; i < stretches.size(); ++i) {
          for (const auto& piece : layout.of_stretch(i)) {
            EXPECT_EQ((piece.range.begin - stretches[i].begin) % outer::kBlock, 0);
            EXPECT_EQ(piece.bytes, outer::blocks_for(piece.range.size()) * outer::block_bytes(wire));
            EXPECT_LE(piece.range.end, stretches[i].end);
            for (std::int64_t e = piece.range.begin; e < piece.range.end; ++e) ++elements[static_cast<std::size_t>(e)];
            for (std::int64_t b = 0; b < piece.bytes; ++b) ++bytes[static_cast<std::size_t>(piece.begin + b)];
            EXPECT_EQ(piece.begin / layout.part_bytes(), (piece.begin + piece.bytes - 1) / layout.part_bytes());
          }
        }
        for (const int count : elements) EXPECT_EQ(count, 1);
        for (const int count : bytes) EXPECT_LE(count, 1);
        for (int r = 0; r < workers; ++r) {  // headers are left free
          for (std::int64_t b = 0; b < BlockLayout::kHeaderBytes; ++b) {
            EXPECT_EQ(bytes[static_cast<std::size_t>(r * layout.part_bytes() + b)], 0);
          }
        }
      }
    }
  }
}

TEST(BlockLayout, APartHasTheSamePiecesAsTheStretches) {
  const BlockLayout layout({{0, 1000}, {1000, 1001}, {1001, 5000}}, Wire::kInt4, 3);
  std::int64_t of_parts = 0;
  for (int part = 0; part < 3; ++part) {
    for (const auto& piece : layout.of_part(part)) {
      of_parts += piece.range.size();
      EXPECT_GE(piece.begin, BlockLayout::kHeaderBytes);
      EXPECT_LE(piece.begin + piece.bytes, layout.part_bytes());
    }
  }
  EXPECT_EQ(of_parts, 5000);
}

}  // namespace
}  // namespace co2
