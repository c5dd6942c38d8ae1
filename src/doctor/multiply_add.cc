#include "doctor/multiply_add.h"

#include <cstdint>
#include <thread>
#include <vector>

#include "comm/thread_cpu.h"

namespace co2::doctor {

namespace {

constexpr int kChains = 10;  // independent of each other: a multiply-add takes 4 cycles, and two start in each
constexpr std::int64_t kBlock = 20'000;

/// `kBlock` multiply-adds in each of kChains vectors; the result keeps the compiler from leaving them out. One function
/// per instruction set, the same text. The factor is below one, so nothing overflows.
using Body = float (*)(float);
#define CO2_BODY(name, width)                                              \
  float name(float start) {                                                \
    typedef float Vector __attribute__((vector_size(4 * (width))));        \
    const Vector zero = {};                                                \
    const Vector factor = zero + 0.999F;                                   \
    const Vector term = zero + 0.001F;                                     \
    Vector a = zero + start, b = a + 1, c = a + 2, d = a + 3, e = a + 4;   \
    Vector f = a + 5, g = a + 6, h = a + 7, i = a + 8, j = a + 9;          \
    for (std::int64_t n = 0; n < kBlock; ++n) {                            \
      a = a * factor + term, b = b * factor + term, c = c * factor + term; \
      d = d * factor + term, e = e * factor + term, f = f * factor + term; \
      g = g * factor + term, h = h * factor + term, i = i * factor + term; \
      j = j * factor + term;                                               \
    }                                                                      \
    const Vector sum = a + b + c + d + e + f + g + h + i + j;              \
    float total = 0;                                                       \
    for (int lane = 0; lane < (width); ++lane) total += sum[lane];         \
    return total;                                                          \
  }

CO2_BODY(baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) CO2_BODY(avx2, 8) __attribute__((target("avx512f"))) CO2_BODY(avx512, 16)
#endif
#undef CO2_BODY

    struct Loop {
  Body body;
  int width;
};

Loop widest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {avx512, 16};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {avx2, 8};
#endif
  return {baseline, 4};
}

double on_one_thread(const Loop& loop) {
  constexpr double kLong = 0.005;  // seconds
  volatile float keep = 1;
  const double begin = cpu_seconds_of_this_thread();
  double seconds = 0;
  std::int64_t blocks = 0;
  while (seconds < kLong) {
    keep = loop.body(keep);
    ++blocks;
    seconds = cpu_seconds_of_this_thread() - begin;
  }
  return 2.0 * loop.width * kChains * static_cast<double>(kBlock * blocks) / seconds;
}

}  // namespace

double multiply_add_flops(int threads) {
  const Loop loop = widest();
  std::vector<double> results(static_cast<std::size_t>(threads));
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < results.size(); ++i) {
      others.emplace_back([&, i] { results[i] = on_one_thread(loop); });
    }
    results[0] = on_one_thread(loop);
  }
  double total = 0;
  for (const double result : results) total += result;
  return total;
}

}  // namespace co2::doctor
