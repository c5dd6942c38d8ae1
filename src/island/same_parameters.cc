#include "island/same_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "comm/buckets.h"

namespace co2 {

namespace {

constexpr std::int64_t kParts = 64;
constexpr std::int64_t kLeast = 16384;  // elements of a part

/// What rounding may add up to over a long run, relative to the parameters.
double rounding(const at::Tensor& live) {
  double step = 0;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, live.scalar_type(), "rounding",
                                  [&] { step = static_cast<double>(std::numeric_limits<scalar_t>::epsilon()); });
  return std::min(1024 * step, 0.05);
}

/// Relative. What has diverged in both is no difference.
double distance(const at::Tensor& mine, const at::Tensor& first) {
  if (mine.equal(first)) return 0;
  const auto norm = [](const at::Tensor& tensor) { return at::linalg_vector_norm(tensor, 2).item<double>(); };
  if (!std::isfinite(norm(mine)) && !std::isfinite(norm(first))) return 0;
  const double apart = norm(mine - first) / norm(first);
  return std::isfinite(apart) ? apart : std::numeric_limits<double>::infinity();
}

[[noreturn]] void drifted(double by) {
  throw ConsensusError(fmt::format(
      "the workers' parameters have drifted apart (by {:.2g} of their size), although they share gradients: the inner "
      "optimizer does not do the same on all of them. Give it the same options, the same rates and the same state "
      "everywhere, change parameters only on all workers at once, and go on from the last model that you saved",
      by));
}

}  // namespace

Witness same_parameters(const at::Tensor& live, std::int64_t turn) {
  const std::int64_t parts = std::clamp<std::int64_t>(live.numel() / kLeast, 1, kParts);
  const std::int64_t part = turn % parts;
  const std::int64_t begin = part * live.numel() / parts;
  const std::int64_t end = (part + 1) * live.numel() / parts;
  const double norm = at::linalg_vector_norm(live.narrow(0, begin, end - begin), 2).item<double>();
  return {.value = norm, .tolerance = rounding(live), .differs = [](double least, double most) {
            drifted((most - least) / std::max(std::abs(most), std::abs(least)));
          }};
}

void make_same(Communicator& data, Communicator& control, const at::Tensor& live, std::int64_t bucket_bytes) {
  const at::NoGradGuard no_grad;
  const std::int64_t most = std::max<std::int64_t>(1, bucket_bytes / static_cast<std::int64_t>(live.element_size()));
  for (const Range& bucket : make_buckets(live.numel(), most)) {
    const at::Tensor mine = live.narrow(0, bucket.begin, bucket.size());
    const at::Tensor first = mine.clone();
    data.broadcast(first, 0)->wait();
    const at::Tensor worst = at::full({1}, distance(mine, first), at::kDouble);
    control.all_reduce(worst, ReduceOp::kMax)->wait();
    if (worst.item<double>() > rounding(live)) drifted(worst.item<double>());
    mine.copy_(first);
  }
}

}  // namespace co2
