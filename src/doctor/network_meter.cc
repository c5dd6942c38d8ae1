#include "doctor/network_meter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/clock.h"
#include "base/spread.h"
#include "comm/timed_all_reduce.h"
#include "outer/wire_dtype.h"

namespace co2::doctor {

namespace {

constexpr std::int64_t kLargest = 64 << 20;
constexpr double kLongest = 2.0;  // seconds that one all-reduce may be expected to take
constexpr double kEnough = 1.0;   // seconds spent on one size
constexpr int kRepeats = 5;
constexpr int kTinyRepeats = 20;
constexpr int kClockRounds = 10;

}  // namespace

std::vector<std::int64_t> transfer_sizes(std::int64_t model_bytes) {
  const std::int64_t last = std::clamp<std::int64_t>(model_bytes, 4, kLargest);
  std::vector<std::int64_t> sizes;
  for (const std::int64_t size : {std::int64_t{64} << 10, std::int64_t{1} << 20, std::int64_t{8} << 20}) {
    if (size < last) sizes.push_back(size);
  }
  sizes.push_back(last);
  return sizes;
}

NetworkFacts measure_network(Communicator& communicator, std::int64_t parameters, Wire wire) {
  // Blocks take two exchanges of half an all-reduce each: it is the bytes that count.
  const at::ScalarType type = wire == Wire::kBfloat16 ? at::kBFloat16 : at::kFloat;
  const auto element = static_cast<std::int64_t>(at::elementSize(type));
  const std::int64_t model_bytes =
      std::llround(static_cast<double>(parameters) * wire_element_bytes(wire, at::kFloat)) / element * element;
  NetworkFacts facts;
  facts.model_wire_bytes = communicator.all_reduce_wire_bytes(model_bytes);

  const auto nothing = at::zeros({1});
  facts.latency = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTinyRepeats && (i < 3 || facts.latency * kTinyRepeats < kEnough); ++i) {
    facts.latency = std::min(facts.latency, timed_all_reduce(communicator, nothing));
  }

  double cycles = 0;
  for (const std::int64_t bytes : transfer_sizes(model_bytes)) {
    if (!facts.transfers.empty()) {
      const Transfer& last = facts.transfers.back();
      if (last.seconds * static_cast<double>(bytes) / static_cast<double>(last.bytes) > kLongest) break;
    }
    const auto tensor = at::zeros({bytes / element}, type);
    // Connections that have been idle start slowly, so the first one does not count.
    double spent = timed_all_reduce(communicator, tensor);
    std::vector<double> times;
    const double cycles_before = communicator.background_cpu_seconds();
    while (times.empty() || (times.size() < kRepeats && spent < kEnough)) {
      times.push_back(timed_all_reduce(communicator, tensor));
      spent += times.back();
    }
    cycles = (communicator.background_cpu_seconds() - cycles_before) / static_cast<double>(times.size());
    const double seconds = spread_of(times).median;
    const auto sent = static_cast<double>(communicator.all_reduce_wire_bytes(bytes));
    facts.transfers.push_back({bytes, seconds, 8 * sent / seconds});
  }
  const Transfer& last = facts.transfers.back();
  const double scale = static_cast<double>(model_bytes) / static_cast<double>(last.bytes);
  facts.model_seconds = facts.latency + scale * std::max(last.seconds - facts.latency, 0.0);
  facts.model_cycles = scale * highest(communicator, cycles);
  return facts;
}

std::vector<ClockOffset> measure_clocks(Communicator& communicator) {
  const int size = communicator.size();
  std::vector<ClockOffset> best(static_cast<std::size_t>(size));
  double shortest = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kClockRounds; ++round) {
    const auto begin = Clock::now();
    communicator.barrier()->wait();
    // Everybody reads its clock after the last one has arrived here, and before anyone has left the gathering.
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    const auto mine = at::full({1}, now.count(), at::kDouble);
    const auto all = at::zeros({size}, at::kDouble);
    communicator.all_gather(all, mine)->wait();
    const double took = seconds_since(begin);
    if (took >= shortest) continue;
    shortest = took;
    const double* clocks = all.data_ptr<double>();
    for (int rank = 0; rank < size; ++rank) {
      best[static_cast<std::size_t>(rank)] = {rank, clocks[rank] - clocks[0], rank == 0 ? 0 : took};
    }
  }
  return best;
}

}  // namespace co2::doctor
