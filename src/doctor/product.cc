#include "doctor/product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <ctime>

#include "doctor/multiply_add.h"

namespace co2::doctor {

Product measure_product() {
  constexpr std::int64_t kSize = 768;
  constexpr int kTries = 10;
  const auto left = at::ones({kSize, kSize});
  const auto right = at::ones({kSize, kSize});
  auto result = at::empty({kSize, kSize});
  at::matmul_out(result, left, right);  // the first one also starts the threads
  const int threads = at::get_num_threads();
  Product best;
  for (int i = 0; i < kTries; ++i) {
    const std::clock_t begin = std::clock();  // of all threads of this process together
    at::matmul_out(result, left, right);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / threads;
    if (seconds > 0) best.flops = std::max(best.flops, 2.0 * kSize * kSize * kSize / seconds);
    best.multiply_add_flops = std::max(best.multiply_add_flops, multiply_add_flops(threads));
  }
  return best;
}

}  // namespace co2::doctor
