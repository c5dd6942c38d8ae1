#include "sync/wire_format.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "comm/wire_dtype.h"
#include "outer/outer_pass.h"
#include "trace/bytes.h"

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

namespace {

/// Values in one dtype, added up by all-reduces. In bfloat16 they are rounded: s = round(w d) / w, so that what
/// rounding leaves behind is known to the worker, and with Restart::kKeep is part of its next progress.
class SummedWire final : public WireFormat {
 public:
  SummedWire(std::shared_ptr<Communicator> communicator, const at::Tensor& like, at::ScalarType dtype,
             std::int64_t bucket_bytes)
      : communicator_(std::move(communicator)), options_(like.options()), dtype_(dtype), bucket_bytes_(bucket_bytes) {}

  Message allocate(std::int64_t numel, bool with_sent) const override {
    Message message;
    message.payload = at::empty({numel}, options_.dtype(dtype_));
    if (with_sent) message.sent = at::empty({numel}, options_);
    return message;
  }

  std::vector<double> start(Message& message, const std::vector<Progress>& progress, double weight) const override {
    message.numel = progress.empty() ? 0 : progress.back().range.end;
    const at::Tensor values = sum(message);
    std::vector<double> norms = weigh(progress, weight, values, message.sent);
    message.works = all_reduce_in_buckets(*communicator_, values, bucket_bytes_);
    message.bytes = wire_bytes(message.numel);
    return norms;
  }

  std::int64_t wire_bytes(std::int64_t numel) const override {
    return communicator_->all_reduce_wire_bytes(numel * static_cast<std::int64_t>(c10::elementSize(dtype_)));
  }

  at::Tensor sum(const Message& message) const override { return message.payload.narrow(0, 0, message.numel); }

 private:
  /// The worker's progress times its weight into `values`, what the peers see of it into `sent` (if defined).
  static std::vector<double> weigh(const std::vector<Progress>& progress, double weight, const at::Tensor& values,
                                   const at::Tensor& sent) {
    if (weight == 0) {
      // Who sits out sends nothing, not even the NaN that zero times an infinite progress would be; what it did not
      // send stays with it.
      values.zero_();
      if (sent.defined()) sent.zero_();
      return std::vector<double>(progress.size(), 0.0);
    }
    std::vector<double> norms;
    for (const auto& [range, consensus, live] : progress) {
      const auto cut = [&range = range](const at::Tensor& t) {
        return t.defined() ? t.narrow(0, range.begin, range.size()) : t;
      };
      norms.push_back(outer::launch(consensus, live, weight, cut(values), cut(sent)));
    }
    return norms;
  }

  std::shared_ptr<Communicator> communicator_;
  at::TensorOptions options_;
  at::ScalarType dtype_;
  std::int64_t bucket_bytes_;
};

}  // namespace

std::unique_ptr<WireFormat> make_wire(Wire wire, std::shared_ptr<Communicator> communicator, const at::Tensor& like,
                                      std::int64_t bucket_bytes) {
  const at::ScalarType dtype = wire_dtype(wire, like.scalar_type());
  return std::make_unique<SummedWire>(std::move(communicator), like, dtype, bucket_bytes);
}

}  // namespace co2
