#include "island/vote.h"

#include <ATen/ATen.h>
#include <co2/error.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "comm/transfer.h"
#include "trace/bytes.h"

namespace co2 {

namespace {

// Of what the largest over all workers is taken. Each witness follows, and its negative, whose largest is the least.
enum Place : std::int64_t { kSkips, kDiscards, kKeeps, kWitnesses };

/// What has diverged everywhere is no difference, and a NaN would be lost among the others.
double comparable(double value) { return std::isfinite(value) ? value : std::numeric_limits<double>::infinity(); }

}  // namespace

Vote::~Vote() { wait_out({work_}); }

void Vote::cast(Gradients::Use use, const std::vector<bool>& used) {
  if (group_) cast_ = witnesses_();
  const std::size_t first_used = kWitnesses + 2 * cast_.size();
  largest_ = at::zeros({static_cast<std::int64_t>(first_used + used.size())}, at::kDouble);
  auto* numbers = largest_.mutable_data_ptr<double>();
  numbers[kSkips] = use == Gradients::Use::kSkip ? 1 : 0;
  numbers[kDiscards] = use == Gradients::Use::kDiscard ? 1 : 0;
  numbers[kKeeps] = use == Gradients::Use::kDiscard ? 0 : 1;
  for (std::size_t i = 0; i < cast_.size(); ++i) {
    numbers[kWitnesses + 2 * i] = comparable(cast_[i].value);
    numbers[kWitnesses + 2 * i + 1] = -comparable(cast_[i].value);
  }
  for (std::size_t i = 0; i < used.size(); ++i) numbers[first_used + i] = used[i] ? 1 : 0;
  if (group_) work_ = group_->all_reduce(largest_, ReduceOp::kMax);
}

bool Vote::all_step(std::int64_t round) {
  if (work_) wait_for_transfer({work_}, group_->all_reduce_wire_bytes(bytes_of(largest_)), round, -1, trace_);
  work_ = nullptr;
  const auto* numbers = largest_.const_data_ptr<double>();
  if (numbers[kDiscards] > 0 && numbers[kKeeps] > 0) {
    throw OptionError(
        "discard_gradients() is for all workers that share gradients at once: some called it while others called "
        "step() or skip_step()");
  }
  for (std::size_t i = 0; i < cast_.size(); ++i) {
    const double most = numbers[kWitnesses + 2 * i];
    const double least = -numbers[kWitnesses + 2 * i + 1];
    const double largest = std::max(std::abs(most), std::abs(least));
    const bool rounding = std::isfinite(largest) && most - least <= cast_[i].tolerance * largest;
    if (most != least && !rounding) cast_[i].differs(least, most);
  }
  return numbers[kSkips] == 0 && numbers[kDiscards] == 0;
}

bool Vote::any_used(std::size_t i) const {
  return largest_.const_data_ptr<double>()[kWitnesses + 2 * cast_.size() + i] > 0;
}

}  // namespace co2
