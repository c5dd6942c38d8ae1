#pragma once

#include <co2/options.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include "outer/blocks.h"

/// The innermost loops of the outer pass on raw float32 arrays: single-threaded, any length, any alignment. What goes
/// over the network may be bfloat16 or blocks of few bits instead, which are read and written in the same pass.
///
/// kernel.inc is compiled once per vector width. All widths give the same bits: no fused multiply-add, and norms are
/// summed in kLanes double-precision lanes (element i belongs to lane i mod kLanes), which are then added in order.
/// kernel.inc calls no library function (but C's memcpy), so that no function compiled for a newer CPU can be picked by
/// the linker for the rest of the program.
namespace co2::outer {

/// The upper half of a float32, bit by bit.
enum class Bfloat16 : std::uint16_t {};

/// What a worker keeps of what it has sent: the blocks, or else numbers.
template <class Wire>
using Sent = std::conditional_t<(kBitsOf<Wire> > 0), Wire, float>;

/// One apply: the arrays, and outer_pass.h's Move in the precision of the arrays. `Wire` is float, Bfloat16 or a Block;
/// the first element of the arrays is then the first one of a block.
template <class Wire>
struct ApplyJob {
  const Wire* sum;
  float* momentum;  ///< not touched if the variant has none
  float* consensus;
  const Sent<Wire>* sent;  ///< only read by Restart::kKeep
  float sent_weight;       ///< of blocks: each scale is divided by it
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
  bool without_momentum = false;  ///< as if it were 0 before and were forgotten; not with `nesterov` nor `clip`
};

/// Squared 2-norms that fall out of an apply, each 0 unless the variant asks for it.
struct ApplyNorms {
  double move = 0;      ///< of the move (`norm`)
  double momentum = 0;  ///< of the new momentum before it was clipped (`clip`)
  double clipped = 0;   ///< of what the clip took from it (`clip`)

  ApplyNorms& operator+=(const ApplyNorms& other) {
    move += other.move;
    momentum += other.momentum;
    clipped += other.clipped;
    return *this;
  }
};

/// Squared 2-norms of what a launch has seen.
struct LaunchNorms {
  double sent = 0;      ///< of what the peers will see of this worker's progress
  double progress = 0;  ///< of all of it
  double left = 0;      ///< of what rounding has left of it

  LaunchNorms& operator+=(const LaunchNorms& other) {
    sent += other.sent;
    progress += other.progress;
    left += other.left;
    return *this;
  }
};

/// The loops that touch what goes over the network.
template <class Wire>
struct WireKernel {
  /// `sent` may be null, and for blocks it is. `stream` writes past the caches, which pays when the arrays are larger
  /// than them. Bfloat16 without `sent`: who does not keep what was sent does not ask what rounding left, which counts
  /// as nothing. Blocks: the norm of what is sent is NaN if one had to be left empty (docs/wire.md).
  LaunchNorms (*launch)(const float* consensus, const float* live, float weight, Wire* wire, float* sent,
                        std::int64_t size, bool stream);
  /// Elements [begin, end) of the job; `begin` is the first of a block.
  using Apply = ApplyNorms (*)(const ApplyJob<Wire>& job, std::int64_t begin, std::int64_t end);
  Apply (*apply)(const ApplyVariant& variant);
  double (*squared_norm)(const Wire* values, std::int64_t size);
  /// Squared norm of progress_scale * sum + momentum_factor * momentum.
  double (*next_momentum_squared_norm)(const Wire* sum, float progress_scale, const float* momentum,
                                       float momentum_factor, std::int64_t size);
};

/// The owner's stage of a wire of blocks: outer_pass.h's add_up.
template <int kBits>
struct AddUpJob {
  const Block<kBits>* const* parts;
  std::int64_t count;  ///< of parts, at least 1
  float weight;
  float inverse_weight;
  float* rest;
  std::int64_t numel;  ///< of `rest`: elements of blocks beyond it have none
  Block<kBits>* out;
};

template <int kBits>
struct BlockKernel : WireKernel<Block<kBits>> {
  /// Blocks [begin, end) of the job. Returns how many of them had to be left empty.
  std::int64_t (*add_up)(const AddUpJob<kBits>& job, std::int64_t begin, std::int64_t end);
};

struct Kernel {
  const char* name;
  WireKernel<float> plain;
  WireKernel<Bfloat16> bfloat16;
  BlockKernel<8> int8;
  BlockKernel<4> int4;
  BlockKernel<2> int2;
};

/// The kernels that this CPU can run, widest first.
std::vector<const Kernel*> supported_kernels();

}  // namespace co2::outer
