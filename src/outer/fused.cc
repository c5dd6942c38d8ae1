#include "outer/fused.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <type_traits>

namespace co2::outer {

namespace avx512 {
extern const Kernel kKernel;
}
namespace avx2 {
extern const Kernel kKernel;
}
namespace baseline {
extern const Kernel kKernel;
}

std::vector<const Kernel*> supported_kernels() {
  std::vector<const Kernel*> kernels;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) kernels.push_back(&avx512::kKernel);
  if (__builtin_cpu_supports("avx2")) kernels.push_back(&avx2::kKernel);
#endif
  kernels.push_back(&baseline::kKernel);
  return kernels;
}

namespace fused {
namespace {

// 256 KiB of each array: long enough for the hardware's prefetchers, short enough to give every thread its share.
constexpr std::int64_t kChunk = 1 << 16;
static_assert(kChunk % kBlock == 0);

// From 8 MiB per array a launch's four arrays fill a last-level cache, and storing past it is faster.
constexpr std::int64_t kStreamFrom = 1 << 21;

/// Calls body(begin, end) for each chunk; returns the sum of the results, added in order.
template <class Body>
auto sum_over_chunks(std::int64_t size, const Body& body) {
  const std::int64_t chunks = (size + kChunk - 1) / kChunk;
  std::vector<std::invoke_result_t<Body, std::int64_t, std::int64_t>> results(static_cast<std::size_t>(chunks));
  at::parallel_for(0, chunks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      results[static_cast<std::size_t>(chunk)] = body(chunk * kChunk, std::min(size, (chunk + 1) * kChunk));
    }
  });
  typename decltype(results)::value_type total{};
  for (const auto& result : results) total += result;
  return total;
}

template <class Wire>
const auto& of(const Kernel& kernel) {
  if constexpr (kBitsOf<Wire> == 8) {
    return kernel.int8;
  } else if constexpr (kBitsOf<Wire> == 4) {
    return kernel.int4;
  } else if constexpr (kBitsOf<Wire> == 2) {
    return kernel.int2;
  } else if constexpr (std::is_same_v<Wire, Bfloat16>) {
    return kernel.bfloat16;
  } else {
    return kernel.plain;
  }
}

/// Where a chunk begins in what goes over the network.
template <class Wire>
Wire* from(Wire* wire, std::int64_t begin) {
  return wire + (kBitsOf<std::remove_const_t<Wire>> > 0 ? begin / kBlock : begin);
}

}  // namespace

const Kernel& best_kernel() {
  static const Kernel& kernel = *supported_kernels().front();
  return kernel;
}

template <class Wire>
LaunchNorms launch(const Kernel& kernel, const float* consensus, const float* live, float weight, Wire* wire,
                   float* sent, std::int64_t size) {
  return sum_over_chunks(size, [&](std::int64_t begin, std::int64_t end) {
    return of<Wire>(kernel).launch(consensus + begin, live + begin, weight, from(wire, begin),
                                   sent == nullptr ? nullptr : sent + begin, end - begin, size >= kStreamFrom);
  });
}

template <class Wire>
ApplyNorms apply(const Kernel& kernel, const ApplyJob<Wire>& job, const ApplyVariant& variant, std::int64_t size) {
  const auto apply = of<Wire>(kernel).apply(variant);
  return sum_over_chunks(size, [&](std::int64_t begin, std::int64_t end) { return apply(job, begin, end); });
}

template <class Wire>
double squared_norm(const Kernel& kernel, const Wire* values, std::int64_t size) {
  return sum_over_chunks(size, [&](std::int64_t begin, std::int64_t end) {
    return of<Wire>(kernel).squared_norm(from(values, begin), end - begin);
  });
}

template <class Wire>
double next_momentum_squared_norm(const Kernel& kernel, const Wire* sum, float progress_scale, const float* momentum,
                                  float momentum_factor, std::int64_t size) {
  return sum_over_chunks(size, [&](std::int64_t begin, std::int64_t end) {
    return of<Wire>(kernel).next_momentum_squared_norm(from(sum, begin), progress_scale, momentum + begin,
                                                       momentum_factor, end - begin);
  });
}

template <int kBits>
std::int64_t add_up(const Kernel& kernel, const AddUpJob<kBits>& job, std::int64_t blocks) {
  return of<Block<kBits>>(kernel).add_up(job, 0, blocks);
}

#define CO2_FOR_WIRE(Wire)                                                                                    \
  template LaunchNorms launch(const Kernel&, const float*, const float*, float, Wire*, float*, std::int64_t); \
  template ApplyNorms apply(const Kernel&, const ApplyJob<Wire>&, const ApplyVariant&, std::int64_t);         \
  template double squared_norm(const Kernel&, const Wire*, std::int64_t);                                     \
  template double next_momentum_squared_norm(const Kernel&, const Wire*, float, const float*, float, std::int64_t);
CO2_FOR_WIRE(float)
CO2_FOR_WIRE(Bfloat16)
CO2_FOR_WIRE(Block<8>)
CO2_FOR_WIRE(Block<4>)
CO2_FOR_WIRE(Block<2>)
#undef CO2_FOR_WIRE
template std::int64_t add_up(const Kernel&, const AddUpJob<8>&, std::int64_t);
template std::int64_t add_up(const Kernel&, const AddUpJob<4>&, std::int64_t);
template std::int64_t add_up(const Kernel&, const AddUpJob<2>&, std::int64_t);

}  // namespace fused
}  // namespace co2::outer
