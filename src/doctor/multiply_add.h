#pragma once

namespace co2::doctor {

/// Single-precision operations per second of multiply-adds that need nothing but registers, on that many threads at
/// once with the widest vectors of this processor (a multiply-add counts as two): what any matrix product stays below.
/// Time is processor time, so other programs on the cores do not count.
/// Takes about 5 ms.
double multiply_add_flops(int threads);

}  // namespace co2::doctor
