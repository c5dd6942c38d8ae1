#pragma once

namespace co2::doctor {

/// How fast this worker multiplies matrices, and how fast its cores could go, in operations per second. Both in
/// processor time, so that other programs on the cores do not pass for a slow library, and the best of several tries in
/// turns. Takes about 0.3 s.
struct Product {
  double flops = 0;
  double multiply_add_flops = 0;
};
Product measure_product();

}  // namespace co2::doctor
