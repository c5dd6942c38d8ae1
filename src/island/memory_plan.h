#pragma once

#include <co2/memory.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "options/recipe.h"

namespace co2 {

/// A model's trained parameters, float32, in the order in which it has registered them.
struct ModelShape {
  struct Parameter {
    std::int64_t elements = 0;
    std::optional<std::size_t> unit = {};  ///< of the UnitModule that it belongs to
  };
  std::vector<Parameter> parameters;

  std::int64_t elements() const;
};

/// What one worker will hold for training, without running it: docs/zero.md has the formulas. `state_copies`: tensors
/// of a parameter's size that the inner optimizer keeps for it (AdamW: 2).
MemoryUse plan_memory(const ModelShape& shape, const Recipe& recipe, int state_copies, int workers);

/// What a Saver copies on the worker of an island that has most to write.
std::int64_t plan_checkpoint(const ModelShape& shape, const Recipe& recipe, int state_copies, int workers);

/// What the system will show for a worker's process, at most and without activations: what malloc keeps of what was
/// freed, LibTorch and the program come on top.
std::int64_t plan_resident(const MemoryUse& use);

/// Bytes that one worker sends in a step, to its island and, on average, to the other islands.
struct Traffic {
  double island = 0;
  double across = 0;
};
Traffic plan_traffic(const ModelShape& shape, const Recipe& recipe, int workers);

}  // namespace co2
