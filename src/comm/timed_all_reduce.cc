#include "comm/timed_all_reduce.h"

#include <ATen/ATen.h>

namespace co2 {

double highest(Communicator& communicator, double value) {
  const at::Tensor tensor = at::full({1}, value, at::kDouble);
  communicator.all_reduce(tensor, ReduceOp::kMax)->wait();
  return tensor.item<double>();
}

double timed_all_reduce(Communicator& data, Communicator& control, const at::Tensor& tensor) {
  data.barrier()->wait();
  const Clock::time_point begin = Clock::now();
  data.all_reduce(tensor, ReduceOp::kSum)->wait();
  return highest(control, std::chrono::duration<double>(Clock::now() - begin).count());
}

}  // namespace co2
