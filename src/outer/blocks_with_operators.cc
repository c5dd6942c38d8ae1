#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>

#include "outer/outer_pass.h"

// Blocks as rows of LibTorch's operators. Scalars that divide are tensors: a device multiplies by the reciprocal of a
// number that it is given as such, which rounds otherwise.
namespace co2::outer {
namespace {

int bits_of(Wire wire) { return wire == Wire::kInt8 ? 8 : wire == Wire::kInt4 ? 4 : 2; }

at::Tensor scalar_like(double value, const at::Tensor& like) { return at::full({1}, value, like.options()); }

/// The values of all elements of the blocks, divided by `weight`, one row per block.
at::Tensor rows_of(const at::Tensor& blocks, Wire wire, at::ScalarType dtype = at::kFloat, double weight = 1) {
  const std::int64_t bits = bits_of(wire);
  const std::int64_t bytes = block_bytes(wire);
  const std::int64_t count = blocks.numel() / bytes;
  const at::Tensor rows = blocks.view({count, bytes});
  // A clone, because what begins at an odd byte can't be seen as a wider type.
  at::Tensor scale = rows.narrow(1, 0, 2).clone(at::MemoryFormat::Contiguous).view(at::kBFloat16).to(dtype);
  if (weight != 1) scale = scale.div(scalar_like(weight, scale));
  const at::Tensor groups = rows.narrow(1, 2, bytes - 2).reshape({count, 4, 2 * bits});
  std::vector<at::Tensor> parts;
  for (std::int64_t shift = 0; shift < 8; shift += bits) {
    parts.push_back(at::bitwise_and(at::bitwise_right_shift(groups, shift), (1 << bits) - 1));
  }
  at::Tensor codes = at::stack(parts, 2).view({count, kBlock}).to(dtype);
  codes.sub_(codes.ge(1 << (bits - 1)).to(dtype), 1 << bits);  // two's complement
  return codes.mul_(scale);
}

struct Coded {
  at::Tensor codes;  ///< whole numbers in float32, one row per block
  at::Tensor scale;  ///< a column
  at::Tensor fits;   ///< a column
};

/// Rounds rows of 64 float32 and writes them as blocks.
Coded encode_rows(const at::Tensor& rows, Wire wire, const at::Tensor& blocks) {
  const std::int64_t bits = bits_of(wire);
  const std::int64_t count = rows.size(0);
  const at::Tensor wanted = rows.abs().amax(1, /*keepdim=*/true).div(scalar_like((1 << (bits - 1)) - 1, rows));
  const at::Tensor fits = wanted.le(kLargestScale);  // not if it is NaN
  const at::Tensor some = wanted.ge(kSmallestScale).logical_and_(fits);
  const at::Tensor zero = at::zeros_like(wanted);
  const at::Tensor up = wanted.view(at::kInt).add(0xffff).bitwise_and(-0x10000).view(at::kFloat);
  const at::Tensor scale = at::where(some, up, zero);
  const at::Tensor inverse = at::where(some, scalar_like(1, rows).div(scale), zero);
  const at::Tensor whole = at::where(some, rows.mul(inverse).round_(), zero).to(at::kInt);

  const at::Tensor parts = whole.bitwise_and((1 << bits) - 1).to(at::kByte).view({count, 4, 8 / bits, 2 * bits});
  at::Tensor bytes = parts.select(2, 0).clone();
  for (std::int64_t part = 1; part < 8 / bits; ++part) {
    bytes.bitwise_or_(at::bitwise_left_shift(parts.select(2, part), part * bits));
  }
  const at::Tensor out = blocks.view({count, block_bytes(wire)});
  out.narrow(1, 0, 2).copy_(scale.to(at::kBFloat16).view(at::kByte));
  out.narrow(1, 2, 8 * bits).copy_(bytes.view({count, 8 * bits}));
  return {whole.to(at::kFloat), scale, fits};
}

/// As rows of 64, the missing ones 0.
at::Tensor padded_rows(const at::Tensor& values, std::int64_t count) {
  return at::constant_pad_nd(values, {0, count * kBlock - values.numel()}).view({count, kBlock});
}

}  // namespace

at::Tensor decode(const Wired& values, at::ScalarType dtype) {
  if (!in_blocks(values.wire)) return values.data;
  const at::NoGradGuard no_grad;
  const auto wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  return rows_of(values.data, values.wire, wide, values.weight).view({-1}).narrow(0, 0, values.numel).to(dtype);
}

namespace with_operators {

LaunchNorms encode(const at::Tensor& consensus, const at::Tensor& live, double weight, Wire wire,
                   const at::Tensor& blocks) {
  const at::NoGradGuard no_grad;
  const std::int64_t numel = consensus.numel();
  const at::Tensor values = at::sub(consensus, live).mul_(weight).to(at::kFloat);
  const at::Tensor rows = padded_rows(values, blocks_for(numel));
  const Coded coded = encode_rows(rows, wire, blocks);
  const auto dtype = consensus.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor scale = coded.scale.to(dtype);
  scale = scale.div(scalar_like(weight, scale));
  const at::Tensor seen = coded.codes.to(dtype).mul_(scale);
  const at::Tensor unfit = coded.fits.logical_not();
  const at::Tensor norm_of = seen.masked_fill(unfit, std::numeric_limits<double>::quiet_NaN());
  // (Of a block without a scale, because there is next to nothing in it, all norms are 0.)
  const at::Tensor scaled = rows.to(dtype).div_(scalar_like(weight, scale)).masked_fill_(scale.eq(0), 0);
  return {squared_norm(norm_of.view({-1})), squared_norm(scaled.view({-1})), squared_norm(scaled.sub(seen).view({-1}))};
}

std::int64_t add_up(const std::vector<at::Tensor>& parts, Wire wire, double total_weight, const at::Tensor& rest,
                    const at::Tensor& out) {
  const at::NoGradGuard no_grad;
  const at::Tensor sum = rows_of(parts[0], wire);
  for (std::size_t i = 1; i < parts.size(); ++i) sum.add_(rows_of(parts[i], wire));
  const at::Tensor before = padded_rows(rest, sum.size(0));
  sum.add_(before.mul(total_weight));
  const Coded coded = encode_rows(sum, wire, out);
  const at::Tensor after = sum.sub(coded.codes.mul(coded.scale)).mul_(1 / total_weight);
  rest.copy_(at::where(coded.fits, after, before).view({-1}).narrow(0, 0, rest.numel()));
  return coded.fits.logical_not().sum().item<std::int64_t>();
}

}  // namespace with_operators
}  // namespace co2::outer
