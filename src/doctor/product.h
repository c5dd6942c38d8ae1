#pragma once

namespace co2::doctor {

/// How fast this worker multiplies matrices, and how fast its cores could go, in operations per second. The best of
/// several tries in turns, so that a disturbance does not hit one of them only. Takes about 0.3 s.
struct Product {
  double flops = 0;
  double multiply_add_flops = 0;
};
Product measure_product();

}  // namespace co2::doctor
