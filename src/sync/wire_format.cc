#include "sync/wire_format.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "comm/buckets.h"
#include "outer/outer_pass.h"
#include "sync/bfloat16_wire.h"

namespace co2 {

std::vector<WorkPtr> all_reduce_in_buckets(Communicator& communicator, const at::Tensor& flat,
                                           std::int64_t bucket_bytes) {
  const std::int64_t most = std::max<std::int64_t>(1, bucket_bytes / flat.element_size());
  std::vector<WorkPtr> works;
  for (const Range& bucket : make_buckets(flat.numel(), most)) {
    works.push_back(communicator.all_reduce(flat.narrow(0, bucket.begin, bucket.size()), ReduceOp::kSum));
  }
  return works;
}

void weigh(const std::vector<WireFormat::Progress>& progress, double weight, const at::Tensor& values,
           const at::Tensor& sent) {
  if (weight == 0) {
    // Who sits out sends nothing, not even the NaN that zero times an infinite progress would be; what it did not send
    // stays with it.
    values.zero_();
    if (sent.defined()) sent.zero_();
    return;
  }
  for (const auto& [range, consensus, live] : progress) {
    const auto cut = [&range = range](const at::Tensor& t) {
      return t.defined() ? t.narrow(0, range.begin, range.size()) : t;
    };
    outer::launch(consensus, live, weight, cut(values), cut(sent));
  }
}

namespace {

/// The values as they are, in the parameters' own dtype, with the weight as one more element.
class PlainWire final : public WireFormat {
 public:
  PlainWire(std::shared_ptr<Communicator> communicator, const at::Tensor& like, std::int64_t bucket_bytes)
      : communicator_(std::move(communicator)), options_(like.options()), bucket_bytes_(bucket_bytes) {}

  Message allocate(std::int64_t numel, bool with_sent) const override {
    Message message;
    message.payload = at::empty({numel + 1}, options_);
    if (with_sent) message.sent = at::empty({numel}, options_);
    return message;
  }

  void start(Message& message, const std::vector<Progress>& progress, double weight) const override {
    const std::int64_t numel = message.payload.numel() - 1;
    weigh(progress, weight, message.payload.narrow(0, 0, numel), message.sent);
    message.payload.narrow(0, numel, 1).fill_(weight);
    message.works = all_reduce_in_buckets(*communicator_, message.payload, bucket_bytes_);
    message.bytes = communicator_->all_reduce_wire_bytes(message.payload.numel() * message.payload.element_size());
  }

  Sum sum(const Message& message) const override {
    const std::int64_t numel = message.payload.numel() - 1;
    return {message.payload.narrow(0, 0, numel), message.payload[numel].item<double>()};
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  at::TensorOptions options_;
  std::int64_t bucket_bytes_;
};

}  // namespace

std::unique_ptr<WireFormat> make_wire(Wire wire, std::shared_ptr<Communicator> communicator, const at::Tensor& like,
                                      std::int64_t bucket_bytes) {
  switch (wire) {
    case Wire::kPlain: return std::make_unique<PlainWire>(std::move(communicator), like, bucket_bytes);
    case Wire::kBfloat16: return std::make_unique<Bfloat16Wire>(std::move(communicator), like, bucket_bytes);
  }
  TORCH_CHECK(false, "no wire number ", static_cast<int>(wire));
}

}  // namespace co2
