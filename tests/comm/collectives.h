#pragma once

#include <ATen/ATen.h>
#include <co2/communicator.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <thread>

#include "support/processes.h"

namespace co2::test {

/// Every collective against its definition, for tensors of none, one, and an odd number of elements. All numbers are
/// whole and small, so that results are exact in any order of summation.
inline void expect_collectives_follow_their_definition(Communicator& group) {
  const int rank = group.rank();
  const int size = group.size();
  const int all = size * (size + 1) / 2;  // 1 + 2 + ... + size
  for (const std::int64_t numel : {0, 1, 3, 1023, 1025, 40'001}) {
    const at::Tensor line = at::arange(numel, at::kFloat);
    const at::Tensor long_line = at::arange(size * numel, at::kFloat);
    const at::Tensor my_part = long_line.narrow(0, rank * numel, numel);

    const at::Tensor sum = line * (rank + 1);
    group.all_reduce(sum, ReduceOp::kSum)->wait();
    CO2_EXPECT(sum.equal(line * all));

    const at::Tensor largest = line.to(at::kDouble) - rank;
    group.all_reduce(largest, ReduceOp::kMax)->wait();
    CO2_EXPECT(largest.equal(line.to(at::kDouble)));

    for (int root = 0; root < size; ++root) {
      const at::Tensor word = at::full({numel}, rank, at::kLong);
      group.broadcast(word, root)->wait();
      CO2_EXPECT(word.equal(at::full({numel}, root, at::kLong)));
    }

    const at::Tensor gathered = at::empty({size * numel});
    group.all_gather(gathered, my_part)->wait();
    CO2_EXPECT(gathered.equal(long_line));

    const at::Tensor in_place = at::full({size * numel}, -1.F);
    in_place.narrow(0, rank * numel, numel).copy_(my_part);
    group.all_gather(in_place, in_place.narrow(0, rank * numel, numel))->wait();
    CO2_EXPECT(in_place.equal(long_line));

    const at::Tensor part = at::empty({numel});
    group.reduce_scatter(part, long_line * (rank + 1), ReduceOp::kSum)->wait();
    CO2_EXPECT(part.equal(my_part * all));

    group.reduce_scatter(part, long_line - rank, ReduceOp::kMax)->wait();
    CO2_EXPECT(part.equal(my_part));

    const at::Tensor exchanged = at::empty({size * numel});
    group.all_to_all(exchanged, long_line + 1000 * rank)->wait();
    for (int from = 0; from < size; ++from) {
      CO2_EXPECT(exchanged.narrow(0, from * numel, numel).equal(my_part + 1000 * from));
    }

    // The result is there as soon as the work says so, whether or not anybody has waited for it.
    const at::Tensor unasked = at::full({numel}, -1.F);
    const WorkPtr scatter = group.reduce_scatter(unasked, long_line * (rank + 1), ReduceOp::kSum);
    while (!scatter->completed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CO2_EXPECT(unasked.equal(my_part * all) && scatter->finished() >= scatter->started());
  }
  const WorkPtr work = group.barrier();
  std::promise<void> told;
  work->then([&] { told.set_value(); });
  CO2_EXPECT(told.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  work->wait();
  bool at_once = false;
  work->then([&] { at_once = true; });
  CO2_EXPECT(at_once);
  CO2_EXPECT(group.carries(c10::DeviceType::CPU));
  CO2_EXPECT(work->completed() && work->finished() >= work->started());
}

}  // namespace co2::test
