#include "island/vote.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <fmt/format.h>

#include "comm/transfer.h"
#include "trace/bytes.h"

namespace co2 {

Vote::~Vote() { wait_out({work_}); }

void Vote::cast(Gradients::Use use) {
  sums_ = at::zeros({2}, at::kDouble);
  if (use != Gradients::Use::kStep) sums_[use == Gradients::Use::kSkip ? 0 : 1] = 1;
  if (group_) work_ = group_->all_reduce(sums_, ReduceOp::kSum);
}

bool Vote::all_step(std::int64_t round) {
  if (work_) wait_for_transfer({work_}, group_->all_reduce_wire_bytes(bytes_of(sums_)), round, -1, trace_);
  work_ = nullptr;
  const double skip = sums_[0].item<double>();
  const double discard = sums_[1].item<double>();
  const int workers = group_ ? group_->size() : 1;
  if (discard > 0 && discard < workers) {
    throw OptionError(
        fmt::format("discard_gradients() is for all workers that share gradients at once: {} of {} called it while the "
                    "others called step() or skip_step()",
                    discard, workers));
  }
  return skip == 0 && discard == 0;
}

}  // namespace co2
