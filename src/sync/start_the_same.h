#pragma once

#include <co2/communicator.h>
#include <co2/parameters.h>

#include "flat/flat_parameters.h"
#include "island/island.h"

namespace co2 {

/// Gives all workers rank 0's parameters, trained ones and others, and buffers. A single collective has at most
/// `bucket_bytes`, so that a large model over a slow network does not run into its timeout.
///
/// Where parameters are apart, no worker ever has all of them: one after the other is sent, and this worker's shard is
/// returned. Otherwise they are in flat.data(), and what is returned is undefined.
at::Tensor start_the_same(Communicator& data, Communicator& control, const Island& island, const FlatParameters& flat,
                          std::int64_t shard_elements, const TrainedModel& model, std::int64_t bucket_bytes);

}  // namespace co2
