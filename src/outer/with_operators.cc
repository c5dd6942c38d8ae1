#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "outer/outer_pass.h"

namespace co2::outer::with_operators {

LaunchNorms launch(const at::Tensor& consensus, const at::Tensor& live, double weight, const at::Tensor& wire,
                   const at::Tensor& sent) {
  const at::NoGradGuard no_grad;
  if (wire.scalar_type() != consensus.scalar_type()) {
    at::Tensor progress = at::sub(consensus, live);
    const double norm = sent.defined() ? squared_norm(progress) : 0;
    wire.copy_(progress.mul_(weight));
    if (!sent.defined()) {
      const double seen = squared_norm(wire) / (weight * weight);
      return {seen, seen, 0};
    }
    sent.copy_(wire).div_(weight);
    at::sub_out(progress, consensus, live);
    return {squared_norm(sent), norm, squared_norm(progress.sub_(sent))};
  }
  at::Tensor progress = sent.defined() ? sent : wire;
  at::sub_out(progress, consensus, live);
  at::Tensor out = wire;
  const double norm = squared_norm(progress);
  at::mul_out(out, progress, at::scalar_tensor(weight, at::kDouble));  // the overload for a Scalar makes a copy
  return {norm, norm, 0};
}

ApplyNorms apply(const Wired& wire_sum, const at::Tensor& own_momentum, const at::Tensor& consensus, const Wired& sent,
                 const at::Tensor& live, const Move& move, bool want_norm) {
  ApplyNorms norms;
  const at::NoGradGuard no_grad;
  const at::Tensor sum = decode(wire_sum).to(consensus.scalar_type());  // no copy if it has that dtype
  const at::Tensor momentum = own_momentum.defined() ? own_momentum : at::zeros_like(consensus);
  momentum.mul_(move.momentum).add_(sum, move.progress_scale);
  if (move.momentum_scale != 1) momentum.mul_(move.momentum_scale);
  if (move.clip > 0) {
    const at::Tensor whole = momentum.clone();
    momentum.clamp_(-move.clip, move.clip);
    norms.momentum = squared_norm(whole);
    norms.clipped = squared_norm(whole.sub_(momentum));
  }

  // Both kinds of move are `step * rate`; heavy-ball needs no tensor of its own for it.
  const at::Tensor step = move.nesterov ? at::mul(sum, move.progress_scale).add_(momentum, move.momentum) : momentum;
  consensus.sub_(step, move.rate);
  switch (move.restart) {
    case Restart::kPaper: live.copy_(consensus); break;
    case Restart::kKeep: live.add_(decode(sent, consensus.scalar_type())).sub_(step, move.rate); break;
    case Restart::kMix: live.lerp_(consensus, 1 - move.mix); break;
  }
  if (want_norm) norms.move = move.rate * move.rate * squared_norm(step);
  return norms;
}

// LibTorch accumulates a norm in the dtype that it is asked for: over 20 M elements float32 is off by 1e-3, and float64
// is twenty times slower on a CPU. So: norms of short rows in float32 (half precision would overflow), and their
// squares summed in float64.
double squared_norm(const Wired& values) {
  const at::NoGradGuard no_grad;
  const at::Tensor tensor = decode(values);
  constexpr std::int64_t kRow = 1024;
  const at::ScalarType dtype = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto of_rows = [dtype](const at::Tensor& rows) {
    return at::linalg_vector_norm(rows, 2, 1, false, dtype).to(at::kDouble).square().sum();
  };
  const std::int64_t in_rows = tensor.numel() / kRow * kRow;
  const at::Tensor rows = tensor.narrow(0, 0, in_rows).view({-1, kRow});
  const at::Tensor rest = tensor.narrow(0, in_rows, tensor.numel() - in_rows).unsqueeze(0);
  return (of_rows(rows) + of_rows(rest)).item<double>();
}

bool is_rounding(const at::Tensor& consensus, const at::Tensor& live, const at::Tensor& momentum, double rate) {
  const at::NoGradGuard no_grad;
  const auto wide = consensus.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const std::int64_t rows = (consensus.numel() + kRoundingRow - 1) / kRoundingRow;
  if (rows == 0) return true;
  const auto largest_of_rows = [&](const at::Tensor& values) {
    return at::constant_pad_nd(values, {0, rows * kRoundingRow - values.numel()}).view({rows, kRoundingRow}).amax(1);
  };
  const at::Tensor moved = largest_of_rows(at::sub(consensus.to(wide), live.to(wide)).abs_());
  const at::Tensor size = largest_of_rows(momentum.to(wide).abs().mul_(rate).add_(consensus.to(wide).abs()));
  return moved.le(size.mul_(kRounding)).all().item<bool>();
}

double next_momentum_squared_norm(const Wired& sum, const at::Tensor& momentum, const Move& move) {
  const at::NoGradGuard no_grad;
  return squared_norm(at::mul(momentum, move.momentum).add_(decode(sum), move.progress_scale));
}

}  // namespace co2::outer::with_operators
