#pragma once

#include <ATen/core/Tensor.h>

#include "flat/flat_parameters.h"
#include "island/island.h"

namespace co2 {

/// Parameters of a model that may be on no worker as a whole, one after the other. `live` is what this worker keeps:
/// its shard, or everything (ForwardParameters::live()).

/// All elements of the i-th parameter, in the order in which memory has them. Collective in an island; blocking.
at::Tensor gather_parameter(const Island& island, const FlatParameters& flat, const at::Tensor& live, std::size_t i);

/// The way back: keeps those of `elements` that are of this worker's shard.
void keep_part(const Island& island, const FlatParameters& flat, const at::Tensor& live, std::size_t i,
               const at::Tensor& elements);

}  // namespace co2
