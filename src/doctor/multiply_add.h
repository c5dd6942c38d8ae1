#pragma once

namespace co2::doctor {

/// Single-precision operations per second of multiply-adds that need nothing but registers, on that many threads at
/// once with the widest vectors of this processor (a multiply-add counts as two): what any matrix product stays below.
/// Takes about 20 ms.
double multiply_add_flops(int threads);

}  // namespace co2::doctor
