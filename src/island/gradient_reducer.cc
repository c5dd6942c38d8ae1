#include "island/gradient_reducer.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>

#include "comm/transfer.h"
#include "flat/shaped_like.h"

namespace co2 {

namespace {
// The first bucket is small so that the wire is busy early in backward.
constexpr std::int64_t kFirstBucketBytes = 1 << 20;
}  // namespace

GradientReducer::GradientReducer(std::shared_ptr<Communicator> communicator, std::shared_ptr<Communicator> control,
                                 const std::vector<Parameter>& trained, std::int64_t bucket_bytes,
                                 int accumulation_steps, Witnesses witnesses, FirstFailure& failure, Trace& trace)
    : communicator_(std::move(communicator)),
      accumulation_steps_(accumulation_steps),
      failure_(failure),
      trace_(trace),
      vote_(std::move(control), std::move(witnesses), trace),
      trained_(each_by_itself(trained)) {
  std::vector<at::Tensor> parameters = tensors_of(trained);
  std::int64_t bytes = 0;
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    const std::int64_t limit = buckets_.size() <= 1 ? std::min(kFirstBucketBytes, bucket_bytes) : bucket_bytes;
    if (buckets_.empty() || bytes >= limit) {
      buckets_.emplace_back();
      bytes = 0;
    }
    bytes += bytes_of(*parameter);
    ++buckets_.back().slots;
    Slot slot;
    slot.parameter = *parameter;
    slot.bucket = buckets_.size() - 1;
    slots_.push_back(std::move(slot));
  }
  // Below autograd, so that it does not count the places in a bucket as views: a user's zero_grad(false) detaches
  // gradients in place, which autograd forbids for views.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::size_t first = 0;
  for (Bucket& bucket : buckets_) {
    std::int64_t numel = 0;
    for (std::size_t i = 0; i < bucket.slots; ++i) numel += slots_[first + i].parameter.numel();
    bucket.buffer = at::zeros({numel}, parameters.front().options().requires_grad(false));
    bytes_.add(bytes_of(bucket.buffer));
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < bucket.slots; ++i) {
      Slot& slot = slots_[first + i];
      slot.view = shaped_like(bucket.buffer.narrow(0, offset, slot.parameter.numel()), slot.parameter);
      offset += slot.parameter.numel();
    }
    first += bucket.slots;
  }
  std::reverse(parameters.begin(), parameters.end());  // the order of the slots
  hooks_ = std::make_unique<GradientHooks>(std::move(parameters), accumulation_steps, failure,
                                           [this](std::size_t slot, int pass) { on_gradient(slots_[slot], pass); });
}

GradientReducer::~GradientReducer() {
  hooks_.reset();
  for (const Bucket& bucket : buckets_) wait_out({bucket.work});
}

void GradientReducer::on_gradient(Slot& slot, int pass) {
  if (pass < accumulation_steps_) {
    if (slot.held == 0) bytes_.add(slot.held = bytes_of(slot.parameter.grad()));
    return;
  }
  fill(slot);
  start_full_buckets();
}

/// Puts a worker's share of the average into the bucket: dividing before the sum avoids overflow in narrow dtypes.
void GradientReducer::fill(Slot& slot) {
  const at::NoGradGuard no_grad;
  bytes_.remove(std::exchange(slot.held, 0));
  const at::Tensor& gradient = slot.parameter.grad();
  slot.used = gradient.defined();
  if (slot.used) {
    if (gradient.layout() != at::kStrided) {
      throw OptionError("ddp can't average sparse gradients: make the embedding dense (sparse = false)");
    }
    at::mul_out(slot.view, gradient, at::scalar_tensor(1.0 / communicator_->size(), slot.view.options()));
    // From here on the gradient lives in the bucket: two copies of the model's gradients at once would be the peak.
    slot.parameter.mutable_grad() = slot.view;
  } else {
    slot.view.zero_();
  }
  slot.ready = true;
  ++buckets_[slot.bucket].ready;
}

void GradientReducer::start_full_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].ready == buckets_[next_bucket_].slots) {
    Bucket& bucket = buckets_[next_bucket_++];
    bucket.work = communicator_->all_reduce(bucket.buffer, ReduceOp::kSum);
  }
}

bool GradientReducer::finish(std::int64_t round, Use use) {
  if (use == Use::kStep) hooks_->check_passes();
  return failure_.watch([&] { return complete(round, use); });
}

bool GradientReducer::complete(std::int64_t round, Use use) {
  for (Slot& slot : slots_) {
    if (!slot.ready) fill(slot);
  }
  start_full_buckets();
  std::vector<bool> used;
  for (const Slot& slot : slots_) used.push_back(slot.used);
  vote_.cast(use, used);
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const std::int64_t bytes = communicator_->all_reduce_wire_bytes(bytes_of(buckets_[i].buffer));
    wait_for_transfer({buckets_[i].work}, bytes, round, static_cast<int>(i), trace_);
  }
  reset();
  const bool step = vote_.all_step(round);
  if (!step) {
    drop_gradients_of(hooks_->parameters());
    return false;
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (vote_.any_used(i)) slots_[i].parameter.mutable_grad() = slots_[i].view;
  }
  return true;
}

void GradientReducer::reset() {
  hooks_->reset();
  for (Slot& slot : slots_) slot.ready = false;
  for (Bucket& bucket : buckets_) {
    bucket.ready = 0;
    bucket.work = nullptr;
  }
  next_bucket_ = 0;
}

}  // namespace co2
