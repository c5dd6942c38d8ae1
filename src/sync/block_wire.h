#pragma once

#include "comm/stages.h"
#include "sync/wire_format.h"

namespace co2 {

/// The version of what block wires send to each other.
inline constexpr int kBlockFormat = 2;

/// `int8`, `int4` and `int2`: blocks of whole numbers with a scale (docs/wire.md). In two stages: every worker sends
/// each other one the part that that one owns; owners add up, round the sum, keep the rest for their next one, and tell
/// everybody. Both run on a thread of their own.
class BlockWire final : public WireFormat {
 public:
  BlockWire(const Island& island, const Recipe& recipe, const at::Tensor& like, std::int64_t numel);

  Message allocate(std::int64_t numel, std::size_t stretches, bool with_sent) const override;
  Sent start(Message& message, const std::vector<Progress>& progress, const Send& send) override;
  std::vector<Arrived> sum(const Message& message, const Range& stretch) const override;
  std::int64_t wire_bytes(std::int64_t numel, Wire wire) const override;
  void visit_sent(StateVisitor& visitor, const std::string& name, Message& message,
                  const std::vector<Range>& stretches) const override;
  void visit_sum(StateVisitor& visitor, const std::string& name, Message& message) const override;
  at::Tensor rest() const override { return rest_; }
  void scale_rest(const Message& message, std::int64_t where, double share) override;
  double background_cpu_seconds() const override { return stages_.cpu_seconds(); }

 private:
  std::shared_ptr<Communicator> to_owners_;
  std::shared_ptr<Communicator> to_all_;
  const Wire largest_;  // of those that it may be asked for
  const bool checksum_;
  const at::TensorOptions options_;
  at::Tensor rest_;
  Stages stages_{2};  // the last member: its thread uses the others
};

}  // namespace co2
