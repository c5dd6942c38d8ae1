#include "comm/buckets.h"

#include <c10/util/Exception.h>

namespace co2 {

std::vector<Range> make_buckets(std::int64_t numel, std::int64_t max_elements) {
  TORCH_CHECK(numel >= 0 && max_elements >= 1, "make_buckets(", numel, ", ", max_elements, ")");
  // Equal parts rather than full ones and a rest: the last transfer is the one that a worker may wait for.
  const std::int64_t count = (numel + max_elements - 1) / max_elements;
  std::vector<Range> buckets;
  buckets.reserve(static_cast<std::size_t>(count));
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t left = numel - begin;
    const std::int64_t size = (left + (count - i) - 1) / (count - i);
    buckets.push_back({begin, begin + size});
    begin += size;
  }
  return buckets;
}

}  // namespace co2
