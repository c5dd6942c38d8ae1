#pragma once

#include <vector>

namespace co2 {

/// The cores that this process may use: its affinity mask, which containers, taskset and Slurm set.
std::vector<int> usable_cores();

/// Restricts the calling process to `cores`. False if the system refuses (async-signal-safe: used after fork).
bool pin_to(const std::vector<int>& cores) noexcept;

}  // namespace co2
