#pragma once

#include <ATen/core/Tensor.h>
#include <co2/options.h>

#include <cstdint>
#include <vector>

#include "outer/kernel.h"
#include "outer/wired.h"

/// Pure arithmetic on flat buffers, no communication: docs/algorithm.md, "One exchange".
///
/// Tensors are one-dimensional, contiguous, of the same length, floating dtype and device; only what
/// goes over the network, `wire` and `sum`, may be bfloat16 or blocks of few bits while the others have a wider dtype.
/// float32 on a CPU takes one fused, vectorised pass; everything else takes a chain of LibTorch operators that gives
/// the same numbers up to rounding. Results of the fused pass do not depend on the number of threads nor on the CPU's
/// vector width: workers on different CPUs keep the same consensus, bit for bit. (The operators promise that only
/// between equal devices with an equal number of threads, and only their norms depend on the latter.) NaNs are never
/// hidden, not by a clip either.
///
/// Tensors of one call must not overlap. Autograd does not see any of it.
namespace co2::outer {

/// Relative to parameters and their moves: what is less may be all that rounding has left behind.
inline constexpr double kRounding = 0x1p-20;
inline constexpr std::int64_t kRoundingRow = 256;  ///< elements whose largest counts

/// launch: sent = consensus - live; wire = weight * sent. A wire of bfloat16 is rounded to nearest, ties to even, and
/// then sent = wire / weight, what the peers will see; weight must not be 0. `sent` may be undefined if the restart
/// does not need it: then, of the norms, what a bfloat16 has left counts as nothing.
LaunchNorms launch(const at::Tensor& consensus, const at::Tensor& live, double weight, const at::Tensor& wire,
                   const at::Tensor& sent);

/// encode: the launch of a wire of blocks, which takes weight * (consensus - live), in float32, and a weight above 0.
/// `blocks` are blocks_for(numel) * block_bytes(wire) bytes. What the peers will see of it is in them, as Wired with
/// that weight: code * (scale / weight), the quotient rounded once per block. Of its norms, which are those of the
/// products before they are rounded, that of what is sent is NaN if a block had no scale that fits (docs/wire.md),
/// which must not be sent. Of such a block, everything is zeros.
LaunchNorms encode(const at::Tensor& consensus, const at::Tensor& live, double weight, Wire wire,
                   const at::Tensor& blocks);

/// The stage between two exchanges of blocks, at the owner of a share of them:
///     S    = ((p_0 + p_1) + p_2 ...) + total_weight * rest     in float32
///     out  = S in blocks
///     rest = (S - out) / total_weight
/// so that what rounding leaves behind goes out with the next sum. Each of `parts`, at least one, and `out` are as many
/// whole blocks. `rest` is float32 whatever the parameters are; it may end before the blocks do, and then nothing is
/// left of the elements behind. With a total weight of 0, which says that nobody sends anything, `out` becomes 0 and
/// `rest` remains. Returns how many blocks overflowed: these become 0 and their rest remains too.
std::int64_t add_up(const std::vector<at::Tensor>& parts, Wire wire, double total_weight, const at::Tensor& rest,
                    const at::Tensor& out);

/// The scalars of one apply, for elements that share an inner rate.
struct Move {
  double progress_scale = 1;  ///< 1 / (total weight * staleness gap * inner rate of the round): the sum as D/(Λγ)
  double momentum = 0;        ///< β
  double momentum_scale = 1;  ///< shrinks the new momentum, for clipping by norm
  double clip = 0;            ///< φ for clipping by value; 0 is off
  double rate = 1;            ///< α γ
  bool nesterov = false;
  Restart restart = Restart::kPaper;
  double mix = 0;  ///< ρ
};

/// Whether the momentum before makes no difference to an apply.
bool may_go_without_momentum(const Move& move);

/// apply, in one pass:
///     g         = progress_scale * sum
///     momentum  = clip(momentum_scale * (β momentum + g), ±φ)
///     move      = rate * (nesterov ? g + β momentum : momentum)
///     consensus = consensus - move
///     live      = consensus | live + sent - move | (1-ρ) consensus + ρ live
/// `momentum` may be undefined if β is 0 and nobody asks for Nesterov or a clip by value
/// (may_go_without_momentum()): then it is taken for 0 and not kept. `sent` is only read by Restart::kKeep: of a sum in
/// blocks it is blocks of the same wire. Of the norms, that of the move is only there if `want_norm`, and those of the
/// clip if one by value is on.
ApplyNorms apply(const Wired& sum, const at::Tensor& momentum, const at::Tensor& consensus, const Wired& sent,
                 const at::Tensor& live, const Move& move, bool want_norm);

/// Squared 2-norm, in a fixed order of summation.
double squared_norm(const Wired& values);

/// Whether consensus - live is nowhere more than what rounding leaves of the consensus and of a move by rate *
/// momentum, 2^-20 of the largest of them among 256 elements: nobody has trained it here. (A single one may be close to
/// 0, and what rounding left of others' moves larger.) Quick if the first elements say no. On a device, at which
/// nothing is looked at from here, never.
bool is_rounding(const at::Tensor& consensus, const at::Tensor& live, const at::Tensor& momentum, double rate);

/// Squared 2-norm of β momentum + progress_scale * sum, the momentum as it would be before clipping. `sum` and
/// `momentum` as in apply.
double next_momentum_squared_norm(const Wired& sum, const at::Tensor& momentum, const Move& move);

/// The same functions as chains of LibTorch operators: the path for other devices and dtypes, and the test's reference.
namespace with_operators {
LaunchNorms launch(const at::Tensor& consensus, const at::Tensor& live, double weight, const at::Tensor& wire,
                   const at::Tensor& sent);
LaunchNorms encode(const at::Tensor& consensus, const at::Tensor& live, double weight, Wire wire,
                   const at::Tensor& blocks);
std::int64_t add_up(const std::vector<at::Tensor>& parts, Wire wire, double total_weight, const at::Tensor& rest,
                    const at::Tensor& out);
ApplyNorms apply(const Wired& sum, const at::Tensor& momentum, const at::Tensor& consensus, const Wired& sent,
                 const at::Tensor& live, const Move& move, bool want_norm);
double squared_norm(const Wired& values);
bool is_rounding(const at::Tensor& consensus, const at::Tensor& live, const at::Tensor& momentum, double rate);
double next_momentum_squared_norm(const Wired& sum, const at::Tensor& momentum, const Move& move);
}  // namespace with_operators

}  // namespace co2::outer
