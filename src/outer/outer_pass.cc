#include "outer/outer_pass.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "outer/fused.h"

namespace co2::outer {
namespace {

void check(const at::Tensor& tensor, const char* name, const at::Tensor& like, bool may_be_bfloat16 = false) {
  TORCH_CHECK(tensor.defined(), "outer pass: ", name, " is undefined");
  TORCH_CHECK(tensor.dim() == 1 && tensor.is_contiguous(), "outer pass: ", name,
              " must be one-dimensional and contiguous, but has sizes ", tensor.sizes(), " and strides ",
              tensor.strides());
  TORCH_CHECK(tensor.is_floating_point(), "outer pass: ", name, " must be of a floating dtype, not ", tensor.dtype());
  const bool dtype_fits = tensor.dtype() == like.dtype() || (may_be_bfloat16 && tensor.scalar_type() == at::kBFloat16);
  TORCH_CHECK(tensor.numel() == like.numel() && dtype_fits && tensor.device() == like.device(), "outer pass: ", name,
              " has ", tensor.numel(), " elements of ", tensor.dtype(), " on ", tensor.device(), ", the others have ",
              like.numel(), " of ", like.dtype(), " on ", like.device());
}

bool can_fuse(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.scalar_type() == at::kFloat; }

/// Calls body(pointer) with a float* or a Bfloat16*, by the tensor's dtype.
template <class Body>
auto with_wire(const at::Tensor& wire, const Body& body) {
  if (wire.scalar_type() == at::kBFloat16) return body(static_cast<Bfloat16*>(wire.mutable_data_ptr()));
  return body(wire.mutable_data_ptr<float>());
}

/// A scalar in the precision of the arrays. LibTorch's operators refuse one that overflows, and so do we.
float narrow(double value, const char* name) {
  const float result = static_cast<float>(value);
  TORCH_CHECK(std::isfinite(result) || !std::isfinite(value), "outer pass: ", name, " = ", value, " overflows float32");
  return result;
}

}  // namespace

double launch(const at::Tensor& consensus, const at::Tensor& live, double weight, const at::Tensor& wire,
              const at::Tensor& sent) {
  check(consensus, "consensus", consensus);
  check(live, "live", consensus);
  check(wire, "wire", consensus, /*may_be_bfloat16=*/true);
  if (sent.defined()) check(sent, "sent", consensus);
  if (!can_fuse(consensus)) return with_operators::launch(consensus, live, weight, wire, sent);
  return with_wire(wire, [&](auto* data) {
    return fused::launch(fused::best_kernel(), consensus.const_data_ptr<float>(), live.const_data_ptr<float>(),
                         narrow(weight, "weight"), data, sent.defined() ? sent.mutable_data_ptr<float>() : nullptr,
                         consensus.numel());
  });
}

ApplyNorms apply(const at::Tensor& sum, const at::Tensor& momentum, const at::Tensor& consensus, const at::Tensor& sent,
                 const at::Tensor& live, const Move& move, bool want_norm) {
  const bool keep = move.restart == Restart::kKeep;
  check(consensus, "consensus", consensus);
  check(sum, "sum", consensus, /*may_be_bfloat16=*/true);
  check(momentum, "momentum", consensus);
  check(live, "live", consensus);
  if (keep) check(sent, "sent", consensus);
  TORCH_CHECK(move.clip >= 0, "outer pass: clip = ", move.clip, " must be 0 (off) or positive");
  TORCH_CHECK(move.mix >= 0 && move.mix <= 1, "outer pass: mix = ", move.mix, " must be within 0..1");
  if (!can_fuse(consensus)) return with_operators::apply(sum, momentum, consensus, sent, live, move, want_norm);

  const ApplyVariant variant = {
      .restart = move.restart, .nesterov = move.nesterov, .clip = move.clip > 0, .norm = want_norm};
  return with_wire(sum, [&]<class Wire>(Wire* data) {
    const ApplyJob<Wire> job = {
        .sum = data,
        .momentum = momentum.mutable_data_ptr<float>(),
        .consensus = consensus.mutable_data_ptr<float>(),
        .sent = keep ? sent.const_data_ptr<float>() : nullptr,
        .live = live.mutable_data_ptr<float>(),
        .progress_scale = narrow(move.progress_scale, "progress_scale"),
        .momentum_factor = narrow(move.momentum, "momentum"),
        .momentum_scale = narrow(move.momentum_scale, "momentum_scale"),
        .clip = narrow(move.clip, "clip"),
        .rate = narrow(move.rate, "rate"),
        .live_share = narrow(move.mix, "mix"),
        .consensus_share = narrow(1 - move.mix, "mix"),
    };
    return fused::apply(fused::best_kernel(), job, variant, consensus.numel());
  });
}

double squared_norm(const at::Tensor& tensor) {
  check(tensor, "tensor", tensor);
  const bool is_bfloat16 = tensor.is_cpu() && tensor.scalar_type() == at::kBFloat16;
  if (!can_fuse(tensor) && !is_bfloat16) return with_operators::squared_norm(tensor);
  return with_wire(tensor,
                   [&](const auto* data) { return fused::squared_norm(fused::best_kernel(), data, tensor.numel()); });
}

void rest_if_rounding(const at::Tensor& sum, double scale, const at::Tensor& consensus, const at::Tensor& momentum,
                      double rate) {
  check(momentum, "momentum", momentum);
  check(consensus, "consensus", momentum);
  check(sum, "sum", momentum, /*may_be_bfloat16=*/true);
  if (!can_fuse(momentum)) return with_operators::rest_if_rounding(sum, scale, consensus, momentum, rate);
  const auto rests = [&](const auto* progress) {
    const float* x = consensus.const_data_ptr<float>();
    const float* m = momentum.const_data_ptr<float>();
    for (std::int64_t i = 0; i < momentum.numel(); ++i) {
      const double limit = (std::abs(double{x[i]}) + std::abs(double{m[i]}) * rate) * kRounding;
      if (!(std::abs(static_cast<double>(static_cast<float>(progress[i]))) * scale <= limit)) return false;
    }
    return true;
  };
  const bool none = sum.scalar_type() == at::kBFloat16 ? rests(sum.const_data_ptr<at::BFloat16>())
                                                       : rests(sum.const_data_ptr<float>());
  if (none) momentum.zero_();
}

double next_momentum_squared_norm(const at::Tensor& sum, const at::Tensor& momentum, const Move& move) {
  check(momentum, "momentum", momentum);
  check(sum, "sum", momentum, /*may_be_bfloat16=*/true);
  if (!can_fuse(momentum)) return with_operators::next_momentum_squared_norm(sum, momentum, move);
  return with_wire(sum, [&](const auto* data) {
    return fused::next_momentum_squared_norm(fused::best_kernel(), data, narrow(move.progress_scale, "progress_scale"),
                                             momentum.const_data_ptr<float>(), narrow(move.momentum, "momentum"),
                                             momentum.numel());
  });
}

}  // namespace co2::outer
