#pragma once

#include <co2/communicator.h>

namespace co2 {

/// The highest of what the workers have, the same on all of them. Blocking.
double highest(Communicator& communicator, double value);

/// Seconds that an all-reduce takes, as the worker saw it that it took longest: the others were late from the barrier,
/// and all of them then decide alike what to do next. Blocking.
double timed_all_reduce(Communicator& communicator, const at::Tensor& tensor);

}  // namespace co2
