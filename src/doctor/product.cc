#include "doctor/product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>

#include "doctor/multiply_add.h"

namespace co2::doctor {

Product measure_product() {
  constexpr std::int64_t kSize = 768;
  constexpr int kTries = 5;
  const auto left = at::ones({kSize, kSize});
  const auto right = at::ones({kSize, kSize});
  auto result = at::empty({kSize, kSize});
  at::matmul_out(result, left, right);  // the first one also starts the threads
  Product best;
  for (int i = 0; i < kTries; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    at::matmul_out(result, left, right);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best.flops = std::max(best.flops, 2.0 * kSize * kSize * kSize / seconds.count());
    best.multiply_add_flops = std::max(best.multiply_add_flops, multiply_add_flops(at::get_num_threads()));
  }
  return best;
}

}  // namespace co2::doctor
