#pragma once

#include "outer/kernel.h"

#include <cstdint>

/// The kernels over arrays of any length, on all of LibTorch's threads.
///
/// Work is cut into chunks whose borders depend on nothing but the length, and the chunks' norms are added in order:
/// results do not depend on the number of threads.
namespace co2::outer::fused {

/// The widest kernel of this CPU.
const Kernel& best_kernel();

/// `Wire` is float, Bfloat16 or a Block.
template <class Wire>
LaunchNorms launch(const Kernel& kernel, const float* consensus, const float* live, float weight, Wire* wire,
                   float* sent, std::int64_t size);
template <class Wire>
ApplyNorms apply(const Kernel& kernel, const ApplyJob<Wire>& job, const ApplyVariant& variant, std::int64_t size);
template <class Wire>
double squared_norm(const Kernel& kernel, const Wire* values, std::int64_t size);
template <class Wire>
double next_momentum_squared_norm(const Kernel& kernel, const Wire* sum, float progress_scale, const float* momentum,
                                  float momentum_factor, std::int64_t size);
/// Returns how many of the `blocks` had to be left empty. On the calling thread alone: it runs beside training, whose
/// threads it must not take.
template <int kBits>
std::int64_t add_up(const Kernel& kernel, const AddUpJob<kBits>& job, std::int64_t blocks);

}  // namespace co2::outer::fused
