#pragma once

#include <cstdint>
#include <vector>

#include "base/range.h"

namespace co2 {

/// Cuts `numel` elements into consecutive ranges of about equal size, at most `max_elements` each, that cover every
/// element exactly once. No elements: no ranges.
std::vector<Range> make_buckets(std::int64_t numel, std::int64_t max_elements);

}  // namespace co2
