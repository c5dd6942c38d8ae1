#pragma once

#include <co2/communicator.h>
#include <co2/options.h>

#include <cstdint>
#include <vector>

#include "doctor/facts.h"

namespace co2::doctor {

/// Times all-reduces from one number up to the model's size (at most 64 MiB), as long as the next one promises to be
/// over soon: a few seconds on any network, after which the rest is extrapolated. A collective; the same on all
/// workers.
NetworkFacts measure_network(Communicator& communicator, std::int64_t parameters, Wire wire);

/// Compares the workers' clocks. A collective.
std::vector<ClockOffset> measure_clocks(Communicator& communicator);

/// The sizes that are tried for a model of so many bytes, the largest last.
std::vector<std::int64_t> transfer_sizes(std::int64_t model_bytes);

}  // namespace co2::doctor
