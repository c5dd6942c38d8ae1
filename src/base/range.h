#pragma once

#include <cstdint>

namespace co2 {

/// A half-open range of elements of a flat buffer.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

}  // namespace co2
