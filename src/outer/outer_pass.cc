#include "outer/outer_pass.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <bit>
#include <cmath>
#include <limits>

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

/// Whole blocks of a wire, `count` of them.
void check_blocks(const at::Tensor& blocks, const char* name, Wire wire, std::int64_t count, at::Device device) {
  TORCH_CHECK(in_blocks(wire), "outer pass: wire = ", co2::name(wire), " is not one of blocks");
  TORCH_CHECK(blocks.defined(), "outer pass: ", name, " is undefined");
  TORCH_CHECK(blocks.dim() == 1 && blocks.is_contiguous() && blocks.scalar_type() == at::kByte, "outer pass: ", name,
              " must be bytes, one-dimensional and contiguous, but is of ", blocks.dtype(), " with sizes ",
              blocks.sizes(), " and strides ", blocks.strides());
  TORCH_CHECK(blocks.numel() == count * block_bytes(wire) && blocks.device() == device, "outer pass: ", name, " has ",
              blocks.numel(), " bytes on ", blocks.device(), ", but ", count, " blocks of ", co2::name(wire), " on ",
              device, " are expected");
}

void check(const Wired& values, const char* name, const at::Tensor& like) {
  if (!in_blocks(values.wire)) return check(values.data, name, like, /*may_be_bfloat16=*/true);
  TORCH_CHECK(values.numel == like.numel(), "outer pass: ", name, " has ", values.numel, " elements, the others have ",
              like.numel());
  check_blocks(values.data, name, values.wire, blocks_for(values.numel), like.device());
}

/// What a worker has kept of what it has sent: blocks, or numbers as precise as its parameters.
void check_sent(const Wired& sent, const at::Tensor& like) {
  if (!in_blocks(sent.wire)) return check(sent.data, "sent", like);
  check(sent, "sent", like);
  TORCH_CHECK(sent.weight > 0, "outer pass: sent has a weight of ", sent.weight, ", which must be positive");
}

bool can_fuse(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.scalar_type() == at::kFloat; }

/// Calls body(pointer) with a float*, a Bfloat16* or a Block*.
template <class Body>
auto with_wire(const Wired& wired, const Body& body) {
  void* data = wired.data.mutable_data_ptr();
  switch (wired.wire) {
    case Wire::kInt8: return body(static_cast<Block<8>*>(data));
    case Wire::kInt4: return body(static_cast<Block<4>*>(data));
    case Wire::kInt2: return body(static_cast<Block<2>*>(data));
    default: break;
  }
  if (wired.data.scalar_type() == at::kBFloat16) return body(static_cast<Bfloat16*>(data));
  return body(static_cast<float*>(data));
}

/// A scalar in the precision of the arrays. LibTorch's operators refuse one that overflows, and so do we.
float narrow(double value, const char* name) {
  const float result = static_cast<float>(value);
  TORCH_CHECK(std::isfinite(result) || !std::isfinite(value), "outer pass: ", name, " = ", value, " overflows float32");
  return result;
}

}  // namespace

bool may_go_without_momentum(const Move& move) { return move.momentum == 0 && move.clip == 0 && !move.nesterov; }

LaunchNorms launch(const at::Tensor& consensus, const at::Tensor& live, double weight, const at::Tensor& wire,
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

LaunchNorms encode(const at::Tensor& consensus, const at::Tensor& live, double weight, Wire wire,
                   const at::Tensor& blocks) {
  check(consensus, "consensus", consensus);
  check(live, "live", consensus);
  check_blocks(blocks, "blocks", wire, blocks_for(consensus.numel()), consensus.device());
  TORCH_CHECK(weight > 0, "outer pass: weight = ", weight, " must be positive");
  if (!can_fuse(consensus)) return with_operators::encode(consensus, live, weight, wire, blocks);
  return with_wire({blocks, wire, consensus.numel()}, [&](auto* data) {
    return fused::launch(fused::best_kernel(), consensus.const_data_ptr<float>(), live.const_data_ptr<float>(),
                         narrow(weight, "weight"), data, nullptr, consensus.numel());
  });
}

std::int64_t add_up(const std::vector<at::Tensor>& parts, Wire wire, double total_weight, const at::Tensor& rest,
                    const at::Tensor& out) {
  check(rest, "rest", rest);
  TORCH_CHECK(rest.scalar_type() == at::kFloat, "outer pass: rest must be of float, not ", rest.dtype());
  TORCH_CHECK(in_blocks(wire), "outer pass: wire = ", co2::name(wire), " is not one of blocks");
  TORCH_CHECK(out.defined(), "outer pass: out is undefined");
  const std::int64_t blocks = out.numel() / block_bytes(wire);
  check_blocks(out, "out", wire, blocks, rest.device());
  TORCH_CHECK(rest.numel() <= blocks * kBlock, "outer pass: rest has ", rest.numel(), " elements, out only ", blocks,
              " blocks");
  TORCH_CHECK(!parts.empty(), "outer pass: there are no parts to add up");
  for (const at::Tensor& part : parts) check_blocks(part, "a part", wire, blocks, rest.device());
  TORCH_CHECK(total_weight >= 0, "outer pass: total_weight = ", total_weight, " must not be negative");
  if (total_weight == 0) {
    out.zero_();
    return 0;
  }
  if (!can_fuse(rest)) return with_operators::add_up(parts, wire, total_weight, rest, out);
  return with_wire({out, wire, rest.numel()}, [&]<class Form>(Form* data) -> std::int64_t {
    if constexpr (kBitsOf < Form >> 0) {
      std::vector<const Form*> pointers;
      for (const at::Tensor& part : parts) pointers.push_back(static_cast<const Form*>(part.const_data_ptr()));
      const AddUpJob<kBitsOf<Form>> job = {.parts = pointers.data(),
                                           .count = static_cast<std::int64_t>(pointers.size()),
                                           .weight = narrow(total_weight, "total_weight"),
                                           .inverse_weight = narrow(1 / total_weight, "1 / total_weight"),
                                           .rest = rest.mutable_data_ptr<float>(),
                                           .numel = rest.numel(),
                                           .out = data};
      return fused::add_up(fused::best_kernel(), job, blocks);
    }
    return 0;  // checked above
  });
}

ApplyNorms apply(const Wired& sum, const at::Tensor& momentum, const at::Tensor& consensus, const Wired& sent,
                 const at::Tensor& live, const Move& move, bool want_norm) {
  const bool keep = move.restart == Restart::kKeep;
  check(consensus, "consensus", consensus);
  check(sum, "sum", consensus);
  if (momentum.defined() || !may_go_without_momentum(move)) check(momentum, "momentum", consensus);
  check(live, "live", consensus);
  if (keep) {
    TORCH_CHECK(in_blocks(sum.wire) ? sent.wire == sum.wire : !in_blocks(sent.wire), "outer pass: sent is of wire ",
                co2::name(sent.wire), ", the sum of ", co2::name(sum.wire));
    check_sent(sent, consensus);
  }
  TORCH_CHECK(move.clip >= 0, "outer pass: clip = ", move.clip, " must be 0 (off) or positive");
  TORCH_CHECK(move.mix >= 0 && move.mix <= 1, "outer pass: mix = ", move.mix, " must be within 0..1");
  if (!can_fuse(consensus)) return with_operators::apply(sum, momentum, consensus, sent, live, move, want_norm);

  const ApplyVariant variant = {.restart = move.restart,
                                .nesterov = move.nesterov,
                                .clip = move.clip > 0,
                                .norm = want_norm,
                                .without_momentum = !momentum.defined()};
  return with_wire(sum, [&]<class Wire>(Wire* data) {
    const ApplyJob<Wire> job = {
        .sum = data,
        .momentum = momentum.defined() ? momentum.mutable_data_ptr<float>() : nullptr,
        .consensus = consensus.mutable_data_ptr<float>(),
        .sent = keep ? static_cast<const Sent<Wire>*>(sent.data.const_data_ptr()) : nullptr,
        .sent_weight = narrow(sent.weight, "weight"),
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

double squared_norm(const Wired& values) {
  if (in_blocks(values.wire)) {
    TORCH_CHECK(values.data.defined(), "outer pass: tensor is undefined");
    check_blocks(values.data, "tensor", values.wire, blocks_for(values.numel), values.data.device());
    if (!values.data.is_cpu()) return with_operators::squared_norm(values);
  } else {
    check(values.data, "tensor", values.data);
    const bool is_bfloat16 = values.data.is_cpu() && values.data.scalar_type() == at::kBFloat16;
    if (!can_fuse(values.data) && !is_bfloat16) return with_operators::squared_norm(values);
  }
  return with_wire(values,
                   [&](const auto* data) { return fused::squared_norm(fused::best_kernel(), data, values.numel); });
}

bool is_rounding(const at::Tensor& consensus, const at::Tensor& live, const at::Tensor& momentum, double rate) {
  check(momentum, "momentum", consensus);
  check(live, "live", consensus);
  if (!consensus.is_cpu()) return false;
  if (!can_fuse(consensus)) return with_operators::is_rounding(consensus, live, momentum, rate);
  const auto* x = consensus.const_data_ptr<float>();
  const auto* y = live.const_data_ptr<float>();
  const auto* m = momentum.const_data_ptr<float>();
  for (std::int64_t row = 0; row < consensus.numel(); row += kRoundingRow) {
    double progress = 0;
    double largest = 0;
    for (std::int64_t i = row; i < std::min(row + kRoundingRow, consensus.numel()); ++i) {
      const double moved = std::abs(double{x[i]} - double{y[i]});
      if (!(moved <= std::numeric_limits<float>::max())) return false;  // not finite: a matter for others
      progress = std::max(progress, moved);
      largest = std::max(largest, std::abs(double{x[i]}) + std::abs(double{m[i]}) * rate);
    }
    if (progress > largest * kRounding) return false;
  }
  return true;
}

double next_momentum_squared_norm(const Wired& sum, const at::Tensor& momentum, const Move& move) {
  if (!momentum.defined() && may_go_without_momentum(move)) {
    return move.progress_scale * move.progress_scale * squared_norm(sum);
  }
  check(momentum, "momentum", momentum);
  check(sum, "sum", momentum);
  if (!can_fuse(momentum)) return with_operators::next_momentum_squared_norm(sum, momentum, move);
  return with_wire(sum, [&](const auto* data) {
    return fused::next_momentum_squared_norm(fused::best_kernel(), data, narrow(move.progress_scale, "progress_scale"),
                                             momentum.const_data_ptr<float>(), narrow(move.momentum, "momentum"),
                                             momentum.numel());
  });
}

}  // namespace co2::outer
