#include "sync/wire_format.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "flat/cut.h"
#include "outer/wire_dtype.h"
#include "sync/block_wire.h"
#include "sync/summable.h"
#include "trace/bytes.h"

namespace co2 {

std::int64_t buffer_bytes(const Message& message) {
  std::int64_t bytes = 0;
  for (const at::Tensor* tensor : {&message.payload, &message.sent, &message.received, &message.added_up}) {
    bytes += bytes_of(*tensor);
  }
  if (!message.sums.is_same(message.payload)) bytes += bytes_of(message.sums);
  return bytes;
}

std::vector<WorkPtr> all_reduce_in_buckets(Communicator& communicator, const at::Tensor& flat,
                                           std::int64_t bucket_bytes) {
  const std::int64_t most = std::max<std::int64_t>(1, bucket_bytes / flat.element_size());
  std::vector<WorkPtr> works;
  for (const Range& bucket : make_buckets(flat.numel(), most)) {
    works.push_back(communicator.all_reduce(flat.narrow(0, bucket.begin, bucket.size()), ReduceOp::kSum));
  }
  return works;
}

// What is not sent stays with the worker. Not even the NaN goes out that zero times an infinite progress would be.
WireFormat::Sent WireFormat::snapshot(std::size_t stretches, double weight, int workers, at::ScalarType dtype,
                                      const at::Tensor& payload, const at::Tensor& sent,
                                      const std::function<outer::LaunchNorms(std::size_t)>& encode) {
  Sent result;
  if (weight > 0) {
    double squared = 0;
    for (std::size_t i = 0; i < stretches; ++i) squared += result.norms.emplace_back(encode(i)).sent;
    result.left_out = !summable(squared, weight, workers, dtype);
    if (!result.left_out) return result;
  }
  payload.zero_();
  if (sent.defined()) sent.zero_();
  result.norms.assign(stretches, {});
  return result;
}

namespace {

/// In bfloat16 values are rounded: s = round(w d) / w, so that what rounding leaves behind is known to the worker, and
/// with Restart::kKeep is part of its next progress.
class SummedWire final : public WireFormat {
 public:
  SummedWire(std::shared_ptr<Communicator> communicator, const at::Tensor& like, at::ScalarType dtype,
             std::int64_t bucket_bytes)
      : communicator_(std::move(communicator)), options_(like.options()), dtype_(dtype), bucket_bytes_(bucket_bytes) {}

  Message allocate(std::int64_t numel, std::size_t /*stretches*/, bool with_sent) const override {
    Message message;
    message.payload = at::empty({numel}, options_.dtype(dtype_));
    if (with_sent) message.sent = at::empty({numel}, options_);
    return message;
  }

  Sent start(Message& message, const std::vector<Progress>& progress, const Send& send) override {
    message.numel = progress.empty() ? 0 : progress.back().range.end;
    const at::Tensor values = values_of(message);
    const Sent sent =
        snapshot(progress.size(), send.weight, communicator_->size(), dtype_, values, message.sent, [&](std::size_t i) {
          const auto& [range, consensus, live] = progress[i];
          return outer::launch(consensus, live, send.weight, cut(values, range), cut(message.sent, range));
        });
    message.works = all_reduce_in_buckets(*communicator_, values, bucket_bytes_);
    message.bytes = wire_bytes(message.numel, send.wire);
    return sent;
  }

  std::vector<Arrived> sum(const Message& message, const Range& stretch) const override {
    return {{stretch, message.payload.narrow(0, stretch.begin, stretch.size()), cut(message.sent, stretch)}};
  }

  std::int64_t wire_bytes(std::int64_t numel, Wire /*wire*/) const override {
    return communicator_->all_reduce_wire_bytes(numel * static_cast<std::int64_t>(c10::elementSize(dtype_)));
  }

  void visit_sent(StateVisitor& visitor, const std::string& name, Message& message,
                  const std::vector<Range>& stretches) const override {
    message.numel = stretches.empty() ? 0 : stretches.back().end;
    if (message.sent.defined()) visitor.tensor(name, message.sent.narrow(0, 0, message.numel));
  }
  void visit_sum(StateVisitor& visitor, const std::string& name, Message& message) const override {
    visitor.tensor(name, values_of(message));
  }

 private:
  static at::Tensor values_of(const Message& message) { return message.payload.narrow(0, 0, message.numel); }

  std::shared_ptr<Communicator> communicator_;
  at::TensorOptions options_;
  at::ScalarType dtype_;
  std::int64_t bucket_bytes_;
};

}  // namespace

std::unique_ptr<WireFormat> make_summed_wire(Wire wire, std::shared_ptr<Communicator> communicator,
                                             const at::Tensor& like, std::int64_t bucket_bytes) {
  const at::ScalarType dtype = wire_dtype(wire, like.scalar_type());
  return std::make_unique<SummedWire>(std::move(communicator), like, dtype, bucket_bytes);
}

std::unique_ptr<WireFormat> make_wire(const Recipe& recipe, const Island& island, const at::Tensor& like,
                                      std::int64_t numel) {
  check_wire(recipe.wire, like.scalar_type());
  if (!in_blocks(recipe.wire)) return make_summed_wire(recipe.wire, island.across(), like, recipe.bucket_bytes);
  return std::make_unique<BlockWire>(island, recipe, like, numel);
}

}  // namespace co2
