#include "sync/known_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "flat/cut.h"
#include "outer/outer_pass.h"
#include "sync/visiting.h"

namespace co2 {

namespace {

/// That differ by their last bits alone, relative to the number: mixed again and again, it is a few of them.
double tolerance_of(at::ScalarType dtype, bool roughly) {
  constexpr double kLastBits = 16;
  if (!roughly) return 0;
  if (dtype == at::kDouble) return kLastBits * std::numeric_limits<double>::epsilon();
  return dtype == at::kFloat ? kLastBits * std::numeric_limits<float>::epsilon() : 0;  // few bits are all significant
}

template <typename Number>
bool differ(const Number* a, const Number* b, std::int64_t size, Number tolerance) {
  constexpr std::int64_t kRow = 64;  // so many without a branch
  for (std::int64_t row = 0; row < size; row += kRow) {
    bool same = true;
    const std::int64_t end = std::min(row + kRow, size);
    for (std::int64_t i = row; i < end; ++i) same &= std::abs(a[i] - b[i]) <= tolerance * std::abs(a[i]);
    if (!same) return true;
  }
  return false;
}

template <typename Number>
std::vector<bool> in_host_memory(const at::Tensor& consensus, const at::Tensor& live,
                                 const std::vector<Range>& stretches, double tolerance) {
  const auto* a = consensus.const_data_ptr<Number>();
  const auto* b = live.const_data_ptr<Number>();
  std::vector<bool> moved;
  for (const Range& where : stretches) {
    moved.push_back(differ(a + where.begin, b + where.begin, where.size(), static_cast<Number>(tolerance)));
  }
  return moved;
}

/// On any device, of any dtype; asks the device once.
std::vector<bool> with_operators(const at::Tensor& consensus, const at::Tensor& live,
                                 const std::vector<Range>& stretches, double tolerance) {
  if (stretches.empty()) return {};
  std::vector<at::Tensor> same;
  for (const Range& where : stretches) {
    const at::Tensor a = cut(consensus, where);
    const at::Tensor b = cut(live, where);
    same.push_back(tolerance > 0 ? at::sub(a, b).abs_().le(a.abs().mul_(tolerance)).all() : at::eq(a, b).all());
  }
  const at::Tensor answers = at::stack(same).cpu();
  std::vector<bool> moved;
  for (std::int64_t i = 0; i < answers.numel(); ++i) moved.push_back(!answers.const_data_ptr<bool>()[i]);
  return moved;
}

}  // namespace

std::vector<bool> have_moved(const at::Tensor& consensus, const at::Tensor& live, const std::vector<Range>& stretches,
                             bool roughly) {
  const at::NoGradGuard no_grad;
  const double tolerance = tolerance_of(consensus.scalar_type(), roughly);
  if (consensus.is_cpu() && consensus.scalar_type() == at::kFloat) {
    return in_host_memory<float>(consensus, live, stretches, tolerance);
  }
  if (consensus.is_cpu() && consensus.scalar_type() == at::kDouble) {
    return in_host_memory<double>(consensus, live, stretches, tolerance);
  }
  return with_operators(consensus, live, stretches, tolerance);
}

double squared_distance(const at::Tensor& consensus, const at::Tensor& live) {
  const at::NoGradGuard no_grad;
  constexpr std::int64_t kAtOnce = 1 << 18;
  double squared = 0;
  for (std::int64_t begin = 0; begin < consensus.numel(); begin += kAtOnce) {
    const Range where{begin, std::min(begin + kAtOnce, consensus.numel())};
    squared += outer::squared_norm(at::sub(cut(consensus, where), cut(live, where)));
  }
  return squared;
}

void KnownParameters::sent(const std::vector<bool>& moved) {
  memories_.resize(moved.size());
  for (std::size_t i = 0; i < moved.size(); ++i) {
    Memory& memory = memories_[i];
    if (moved[i]) {
      memory = {std::min(memory.sent + 1, kToKnow), 0};
    } else if (++memory.rested >= kToForget) {
      memory = {};
    }
  }
}

void KnownParameters::include(std::size_t parameter, const KnownParameters& others, std::size_t other) {
  Memory& mine = memories_[parameter];
  const Memory& its = others.memories_[other];
  if (its.sent > mine.sent || (its.sent == mine.sent && its.rested < mine.rested)) mine = its;
}

void KnownParameters::visit(StateVisitor& visitor, const std::string& name, std::size_t parameters) {
  visit_pairs(
      visitor, name, memories_, parameters,
      [](const Memory& memory) { return std::pair<std::int64_t, std::int64_t>(memory.sent, memory.rested); },
      [&](std::int64_t sent, std::int64_t rested) {
        if (sent < 0 || sent > kToKnow) refuse_damaged(name + "/sent", static_cast<double>(sent));
        if (rested < 0 || rested >= kToForget) refuse_damaged(name + "/rested", static_cast<double>(rested));
        return Memory{static_cast<int>(sent), static_cast<int>(rested)};
      });
}

}  // namespace co2
