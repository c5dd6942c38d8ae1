#pragma once

#include <co2/options.h>

#include <cstdint>
#include <vector>

/// The innermost loops of the outer pass on raw float32 arrays: single-threaded, any length, any alignment. What goes
/// over the network may be bfloat16 instead, which is read and written in the same pass.
///
/// kernel.inc is compiled once per vector width. All widths give the same bits: no fused multiply-add, and norms are
/// summed in kLanes double-precision lanes (element i belongs to lane i mod kLanes), which are then added in order.
/// kernel.inc calls no library function, so that no function compiled for a newer CPU can be picked by the
/// linker for the rest of the program.
namespace co2::outer {

/// The upper half of a float32, bit by bit.
enum class Bfloat16 : std::uint16_t {};

/// One apply: the arrays, and outer_pass.h's Move in the precision of the arrays. `Wire` is float or Bfloat16.
template <class Wire>
struct ApplyJob {
  const Wire* sum;
  float* momentum;
  float* consensus;
  const float* sent;  ///< only read by Restart::kKeep
  float* live;
  float progress_scale;
  float momentum_factor;
  float momentum_scale;
  float clip;
  float rate;
  float live_share;
  float consensus_share;
};

/// The choices that are made once per pass and not once per element.
struct ApplyVariant {
  Restart restart;
  bool nesterov;
  bool clip;
  bool norm;
};

/// The loops that touch what goes over the network.
template <class Wire>
struct WireKernel {
  /// `sent` may be null. `stream` writes past the caches, which pays when the arrays are larger than them.
  void (*launch)(const float* consensus, const float* live, float weight, Wire* wire, float* sent, std::int64_t size,
                 bool stream);
  /// Elements [begin, end) of the job; returns the squared norm of their move, or 0 if the variant does not ask for it.
  using Apply = double (*)(const ApplyJob<Wire>& job, std::int64_t begin, std::int64_t end);
  Apply (*apply)(const ApplyVariant& variant);
  double (*squared_norm)(const Wire* values, std::int64_t size);
  /// Squared norm of progress_scale * sum + momentum_factor * momentum.
  double (*next_momentum_squared_norm)(const Wire* sum, float progress_scale, const float* momentum,
                                       float momentum_factor, std::int64_t size);
};

struct Kernel {
  const char* name;
  WireKernel<float> plain;
  WireKernel<Bfloat16> bfloat16;
};

/// The kernels that this CPU can run, widest first.
std::vector<const Kernel*> supported_kernels();

}  // namespace co2::outer
