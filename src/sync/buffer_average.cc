#include "sync/buffer_average.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "comm/transfer.h"
#include "sync/visiting.h"
#include "trace/bytes.h"

namespace co2 {

BufferAverage::BufferAverage(std::shared_ptr<Communicator> communicator, const std::vector<NamedTensor>& buffers,
                             Trace& trace)
    : communicator_(std::move(communicator)), trace_(trace) {
  std::int64_t numel = 0;
  for (const auto& [name, buffer] : buffers) {
    if (!buffer.defined() || !buffer.is_floating_point() || buffer.numel() == 0) continue;
    buffers_.push_back(buffer);
    numel += buffer.numel();
  }
  if (buffers_.empty()) return;
  const auto options = at::TensorOptions(at::kDouble).device(buffers_.front().device());
  sent_ = at::empty({numel}, options);
  payload_ = at::empty({numel}, options);
}

void BufferAverage::launch(std::int64_t round) {
  if (buffers_.empty()) return;
  const at::NoGradGuard no_grad;
  std::int64_t offset = 0;
  for (const at::Tensor& buffer : buffers_) {
    sent_.narrow(0, offset, buffer.numel()).copy_(buffer.reshape({-1}));
    offset += buffer.numel();
  }
  payload_.copy_(sent_);
  works_ = {communicator_->all_reduce(payload_, ReduceOp::kSum)};
  bytes_ = communicator_->all_reduce_wire_bytes(bytes_of(payload_));
  round_ = round;
  in_flight_ = true;
}

void BufferAverage::apply() {
  if (!in_flight_) return;
  wait_for_transfer(works_, bytes_, round_, -1, trace_);
  later_.show();
  const at::NoGradGuard no_grad;
  payload_.div_(communicator_->size()).sub_(sent_);
  std::int64_t offset = 0;
  for (const at::Tensor& buffer : buffers_) {
    buffer.add_(payload_.narrow(0, offset, buffer.numel()).view(buffer.sizes()));
    offset += buffer.numel();
  }
  works_.clear();
  in_flight_ = false;
}

void BufferAverage::check() { throw_if_failed(works_, round_); }

void BufferAverage::abandon() noexcept {
  wait_out(works_);
  works_.clear();
  in_flight_ = false;
}

void BufferAverage::settle() {
  for (const WorkPtr& work : works_) wait_in_round(*work, round_);
  later_.show();
}

void BufferAverage::visit(Walk& walk, const std::string& name) {
  if (buffers_.empty()) return;
  StateVisitor& visitor = walk.visitor();
  if (walk.reads()) abandon();
  co2::visit(visitor, name + "/in_flight", in_flight_);
  if (!in_flight_) return;
  visitor.number(name + "/round", round_);
  visitor.tensor(name + "/sent", sent_);
  walk.arriving(works_, round_, later_, [=, this](StateVisitor& to) { to.tensor(name + "/sum", payload_); });
}

}  // namespace co2
