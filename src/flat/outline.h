#pragma once

#include <co2/parameters.h>

namespace co2 {

/// A model's names, shapes, groups and units without its values, and without anything that a Core could change.
TrainedModel outline_of(const TrainedModel& model);

/// One like it, all zero, on the CPU.
TrainedModel blank_from(const TrainedModel& outline);

}  // namespace co2
