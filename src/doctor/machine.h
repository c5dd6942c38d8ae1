#pragma once

#include <string>
#include <string_view>

#include "doctor/facts.h"

namespace co2::doctor {

/// What can be known about this worker without measuring: its machine, its share of it, and the versions of what it
/// runs. What the system does not tell stays empty or zero.
WorkerFacts look_around(int rank, const std::string& co2_version);

/// Resident memory of this process at its peak, in bytes, without the files that it has mapped: those it shares.
double own_peak_bytes();

/// A container's limit as the kernel writes it in cpu.max, such as "150000 100000", in cores; 0: none.
double parse_core_quota(std::string_view text);

/// The value of NAME=VALUE in LibTorch's description of its build; empty if it has none.
std::string build_setting(std::string_view description, std::string_view name);

}  // namespace co2::doctor
