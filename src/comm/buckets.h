#pragma once

#include <cstdint>
#include <vector>

namespace co2 {

/// A half-open range of elements of a flat buffer.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Cuts `numel` elements into consecutive ranges of about equal size, at most `max_elements` each, that cover every
/// element exactly once. No elements: no ranges.
std::vector<Range> make_buckets(std::int64_t numel, std::int64_t max_elements);

}  // namespace co2
