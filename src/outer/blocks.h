#pragma once

#include <co2/options.h>

#include <cstdint>
#include <type_traits>

#include "options/wires.h"

/// Blocks of whole numbers of a few bits with a common scale: docs/wire.md has the format and the rounding.
namespace co2::outer {

inline constexpr std::int64_t kBlock = 64;          ///< elements
inline constexpr float kSmallestScale = 0x1p-100f;  ///< what would need a smaller one is sent as 0
inline constexpr float kLargestScale = 0x1p120f;    ///< what would need a larger one has overflowed

template <int kBits>
struct [[gnu::packed]] Block {  // packed: a message may begin at any byte
  static constexpr int kLargest = (1 << (kBits - 1)) - 1;
  std::uint16_t scale;  ///< the upper half of a float32
  std::uint8_t codes[kBlock * kBits / 8];
};
static_assert(sizeof(Block<8>) == 66 && sizeof(Block<4>) == 34 && sizeof(Block<2>) == 18);
static_assert(alignof(Block<8>) == 1);

/// The bits of a wire's elements if it is one of blocks, or else 0.
template <class Wire>
inline constexpr int kBitsOf = 0;
template <int kBits>
inline constexpr int kBitsOf<Block<kBits>> = kBits;

inline constexpr std::int64_t blocks_for(std::int64_t numel) { return (numel + kBlock - 1) / kBlock; }

/// Bytes of a block of such a wire.
inline std::int64_t block_bytes(Wire wire) {
  switch (wire) {
    case Wire::kInt8: return sizeof(Block<8>);
    case Wire::kInt4: return sizeof(Block<4>);
    case Wire::kInt2: return sizeof(Block<2>);
    default: return 0;
  }
}

// Always inlined because the kernels use these too: kernel.h says why they must not share a function.

template <int kBits>
[[gnu::always_inline]] inline float scale_of(const Block<kBits>& block) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(block.scale) << 16);
}

/// One whole number of a block.
template <int kBits>
[[gnu::always_inline]] inline int code_of(const Block<kBits>& block, std::int64_t element) {
  constexpr std::int64_t kGroupBytes = 2 * kBits;
  const std::int64_t in_group = element % 16;
  const std::uint32_t byte = block.codes[element / 16 * kGroupBytes + in_group % kGroupBytes];
  const int shift = 32 - kBits - static_cast<int>(in_group / kGroupBytes) * kBits;  // its upper bit becomes the sign
  return static_cast<std::int32_t>(byte << shift) >> (32 - kBits);
}

}  // namespace co2::outer
