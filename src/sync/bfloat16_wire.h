#pragma once

#include <ATen/core/Tensor.h>

#include "sync/wire_format.h"

namespace co2 {

/// Progress rounded to bfloat16: two bytes per element. s = round(w d) / w, so that what rounding leaves behind is
/// known to the worker, and with Restart::kKeep is part of its next progress.
///
/// Weights must not be rounded, and so are not summed on the wire: behind the values every worker has a few elements of
/// its own, to which it writes its weight's bytes and the others zeros. Bytes, and their sum with zeros, are exact.
class Bfloat16Wire final : public WireFormat {
 public:
  /// Throws OptionError unless `like` is wider than bfloat16.
  Bfloat16Wire(std::shared_ptr<Communicator> communicator, const at::Tensor& like, std::int64_t bucket_bytes);

  Message allocate(std::int64_t numel, bool with_sent) const override;
  void start(Message& message, const std::vector<Progress>& progress, double weight) const override;
  Sum sum(const Message& message) const override;

 private:
  std::int64_t weight_elements() const;

  std::shared_ptr<Communicator> communicator_;
  at::TensorOptions options_;
  std::int64_t bucket_bytes_;
};

}  // namespace co2
