#pragma once

#include <co2/options.h>

namespace co2 {

/// Whether a wire consists of blocks of whole numbers (docs/wire.md).
inline bool in_blocks(Wire wire) { return wire == Wire::kInt8 || wire == Wire::kInt4 || wire == Wire::kInt2; }

}  // namespace co2
