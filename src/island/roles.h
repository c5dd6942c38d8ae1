#pragma once

#include <co2/parameters.h>
#include <co2/trace.h>

#include <memory>

#include "comm/first_failure.h"
#include "flat/flat_parameters.h"
#include "flat/shard.h"
#include "island/forward_parameters.h"
#include "island/gradients.h"
#include "island/island.h"
#include "island/vote.h"
#include "options/recipe.h"

namespace co2 {

/// What an island's two roles are made for, and must outlive them.
struct RoleContext {
  const Recipe& recipe;
  const TrainedModel& model;
  const Island& island;
  std::shared_ptr<Communicator> all;  ///< workers
  FlatParameters& flat;
  const Shard& shard;
  FirstFailure& failure;
  Trace& trace;
};

/// Workers average whole gradients, and so hold the same live parameters.
bool shares_whole_gradients(const Recipe& recipe, const Island& island);

/// The two choices that a ZeRO stage is.
/// `live`: see start_the_same().
std::unique_ptr<ForwardParameters> make_parameters(const RoleContext& context, const at::Tensor& live);
std::unique_ptr<Gradients> make_gradients(const RoleContext& context, ForwardParameters& parameters,
                                          Witnesses witnesses);

}  // namespace co2
