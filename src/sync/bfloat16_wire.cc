#include "sync/bfloat16_wire.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <cstring>

#include "trace/bytes.h"

namespace co2 {

namespace {
constexpr auto kBytesPerWeight = static_cast<std::int64_t>(sizeof(double));
}

Bfloat16Wire::Bfloat16Wire(std::shared_ptr<Communicator> communicator, const at::Tensor& like,
                           std::int64_t bucket_bytes)
    : communicator_(std::move(communicator)), options_(like.options()), bucket_bytes_(bucket_bytes) {
  if (like.scalar_type() != at::kFloat && like.scalar_type() != at::kDouble) {
    throw OptionError(fmt::format(
        "wire = bfloat16 has no meaning for parameters of {}, which are no wider: use wire = plain, or train "
        "parameters of Float",
        c10::toString(like.scalar_type())));
  }
}

std::int64_t Bfloat16Wire::weight_elements() const { return kBytesPerWeight * communicator_->size(); }

Message Bfloat16Wire::allocate(std::int64_t numel, bool with_sent) const {
  Message message;
  message.payload = at::empty({numel + weight_elements()}, options_.dtype(at::kBFloat16));
  if (with_sent) message.sent = at::empty({numel}, options_);
  return message;
}

void Bfloat16Wire::start(Message& message, const std::vector<Progress>& progress, double weight) const {
  const std::int64_t numel = message.payload.numel() - weight_elements();
  weigh(progress, weight, message.payload.narrow(0, 0, numel), message.sent);
  const at::Tensor weights = at::zeros({weight_elements()}, at::kByte);
  std::memcpy(weights.mutable_data_ptr<std::uint8_t>() + kBytesPerWeight * communicator_->rank(), &weight,
              sizeof(weight));
  message.payload.narrow(0, numel, weight_elements()).copy_(weights);
  message.works = all_reduce_in_buckets(*communicator_, message.payload, bucket_bytes_);
  message.bytes = communicator_->all_reduce_wire_bytes(bytes_of(message.payload));
}

WireFormat::Sum Bfloat16Wire::sum(const Message& message) const {
  const std::int64_t numel = message.payload.numel() - weight_elements();
  const at::Tensor bytes = message.payload.narrow(0, numel, weight_elements()).to(at::kByte).cpu();
  double total_weight = 0;
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    double weight = 0;
    std::memcpy(&weight, bytes.const_data_ptr<std::uint8_t>() + kBytesPerWeight * rank, sizeof(weight));
    total_weight += weight;
  }
  return {message.payload.narrow(0, 0, numel), total_weight};
}

}  // namespace co2
