#pragma once

#include <cstdint>
#include <string>

#include "cluster/group.h"
#include "doctor/facts.h"
#include "train/config.h"

namespace co2::doctor {

/// What this worker's own computation is like: the real model, data and optimizer, without any exchange.
struct Computation {
  StepTimes step;
  double outer_seconds = 0;  ///< launch and apply passes over the whole model
  double peak_bytes = 0;     ///< with the model, the optimizer's state and the whole model in flight
  std::int64_t parameters = 0;
  std::int64_t units_per_step = 0;
};

/// Takes steps for about three seconds, at least one after the first; all workers at the same time, as in training.
/// A collective. Throws DataError on all workers if one can't make its model.
Computation measure_steps(const train::TrainConfig& config, int rank, int size, Group& group);

}  // namespace co2::doctor
