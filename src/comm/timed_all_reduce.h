#pragma once

#include <co2/communicator.h>

namespace co2 {

/// The highest of what the workers have, the same on all of them. Blocking.
double highest(Communicator& communicator, double value);

/// Seconds that an all-reduce over `data` takes, as the worker saw it that it took longest: the others were late from
/// the barrier, and all of them then decide alike what to do next. Blocking.
double timed_all_reduce(Communicator& data, Communicator& control, const at::Tensor& tensor);
inline double timed_all_reduce(Communicator& both, const at::Tensor& tensor) {
  return timed_all_reduce(both, both, tensor);
}

}  // namespace co2
