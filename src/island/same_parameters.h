#pragma once

#include <ATen/core/Tensor.h>
#include <co2/communicator.h>

#include <cstdint>

#include "island/vote.h"

namespace co2 {

/// Workers that average whole gradients hold the same parameters without ever exchanging them, as long as they start
/// alike and their optimizers do the same: with another rate, another optimizer or another state of it on one of them,
/// they would drift apart. (Not bit for bit: processors of different kinds may round differently.)

/// Of one part of `live`; the parts take turns, so that it costs next to nothing.
Witness same_parameters(const at::Tensor& live, std::int64_t turn);

/// Compares all of `live` with rank 0's, and gives everybody that. Throws ConsensusError if it is not the same but for
/// rounding. Collective, and blocking.
void make_same(Communicator& data, Communicator& control, const at::Tensor& live, std::int64_t bucket_bytes);

}  // namespace co2
