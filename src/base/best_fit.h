#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace co2 {

/// Takes the smallest of idle blocks of memory that is at least so large. If there is none, `give_up(block)` is told of
/// the largest, which goes, so that there are never more blocks than were used at once; then a new one must be made.
template <typename Block, typename SizeOf, typename GiveUp>
std::optional<Block> take_best_fit(std::vector<Block>& idle, std::int64_t size, const SizeOf& size_of,
                                   const GiveUp& give_up) {
  if (idle.empty()) return std::nullopt;
  std::sort(idle.begin(), idle.end(), [&](const Block& a, const Block& b) { return size_of(a) < size_of(b); });
  const auto fits = std::find_if(idle.begin(), idle.end(), [&](const Block& block) { return size_of(block) >= size; });
  if (fits == idle.end()) {
    give_up(idle.back());
    idle.pop_back();
    return std::nullopt;
  }
  std::optional<Block> block(std::move(*fits));
  idle.erase(fits);
  return block;
}

}  // namespace co2
