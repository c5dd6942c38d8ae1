#pragma once

#include <cstdint>
#include <initializer_list>

namespace co2::train {

/// A well mixed 64-bit number for each tuple of numbers: random draws that are a function of (seed, rank, step, ...)
/// instead of a generator's state, so that they depend on nothing else and need not be saved. (The finaliser is
/// SplitMix64's.)
inline std::uint64_t mixed(std::initializer_list<std::uint64_t> numbers) {
  std::uint64_t state = 0;
  for (const auto number : numbers) {
    state += 0x9e3779b97f4a7c15u + number;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
    state ^= state >> 31;
  }
  return state;
}

}  // namespace co2::train
