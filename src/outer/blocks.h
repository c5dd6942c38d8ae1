#pragma once

#include <co2/options.h>

#include <cstdint>

/// Blocks of whole numbers of a few bits with a common scale: docs/wire.md has the format and the rounding.
namespace co2::outer {

inline constexpr std::int64_t kBlock = 64;  ///< elements

template <int kBits>
struct Block {
  static constexpr int kLargest = (1 << (kBits - 1)) - 1;
  std::uint16_t scale;  ///< the upper half of a float32
  std::uint8_t codes[kBlock * kBits / 8];
};
static_assert(sizeof(Block<8>) == 66 && sizeof(Block<4>) == 34 && sizeof(Block<2>) == 18);

inline constexpr std::int64_t blocks_for(std::int64_t numel) { return (numel + kBlock - 1) / kBlock; }

/// Whether a wire is one of blocks.
inline bool in_blocks(Wire wire) { return wire == Wire::kInt8 || wire == Wire::kInt4 || wire == Wire::kInt2; }

/// Bytes of a block of such a wire.
inline std::int64_t block_bytes(Wire wire) {
  switch (wire) {
    case Wire::kInt8: return sizeof(Block<8>);
    case Wire::kInt4: return sizeof(Block<4>);
    case Wire::kInt2: return sizeof(Block<2>);
    default: return 0;
  }
}

}  // namespace co2::outer
