#pragma once

#include <array>
#include <cstdint>

namespace co2 {

/// Bytes of tensors that one worker holds for training, by what they are for: each the most at any time. What LibTorch,
/// the program and activations take is not among them.
struct MemoryUse {
  std::int64_t parameters = 0;     ///< those that are here, and the shard of them if it is kept apart
  std::int64_t gradients = 0;      ///< whole ones, and the average of the shard
  std::int64_t inner_state = 0;    ///< the optimizer's
  std::int64_t outer_state = 0;    ///< consensus and outer momentum
  std::int64_t communication = 0;  ///< exchanges in flight, and what collectives need besides their tensors
  std::int64_t checkpoint = 0;     ///< a Saver's copy, which is written while training goes on

  std::int64_t total() const { return parameters + gradients + inner_state + outer_state + communication + checkpoint; }
};

/// Its fields, for whoever reports them all.
struct MemoryField {
  const char* name;
  std::int64_t MemoryUse::*bytes;
};
inline constexpr std::array<MemoryField, 6> kMemoryFields = {{{"parameters", &MemoryUse::parameters},
                                                              {"gradients", &MemoryUse::gradients},
                                                              {"inner_state", &MemoryUse::inner_state},
                                                              {"outer_state", &MemoryUse::outer_state},
                                                              {"communication", &MemoryUse::communication},
                                                              {"checkpoint", &MemoryUse::checkpoint}}};

}  // namespace co2
