#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/buckets.h"

namespace torch::optim {
class Optimizer;
}

namespace co2 {

/// The parameters that an optimizer trains, re-homed as views of one contiguous buffer: parameter groups in the
/// optimizer's order, parameters in order inside, each at a multiple of kAlignment elements with zeros in between.
/// Parameters that do not require a gradient stay where they are.
///
/// Invariant: every element of every trained parameter is in the buffer exactly once; padding stays zero, because all
/// that is ever done to the buffer is elementwise and maps zeros to zeros.
class FlatParameters {
 public:
  static constexpr std::int64_t kAlignment = 16;  // elements: 64 bytes of float32, a cache line

  /// Throws OptionError if there is nothing to train, or if dtypes or devices differ.
  explicit FlatParameters(torch::optim::Optimizer& optimizer);

  const at::Tensor& data() const { return data_; }
  std::int64_t numel() const { return data_.numel(); }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// Where each parameter group is: consecutive, covering the whole buffer.
  const std::vector<Range>& groups() const { return groups_; }

  /// Cuts the buffer into `count` consecutive fragments of about equal size, at multiples of kAlignment. Some are empty
  /// if there are more fragments than there is data.
  std::vector<Range> fragments(int count) const;

  /// Makes the parameters views of `buffer`, which has the layout of data(). No element is copied.
  void point_to(const at::Tensor& buffer);

  /// Throws OptionError if a parameter that was left out has begun to require a gradient.
  void check_frozen() const;

 private:
  at::Tensor data_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::int64_t> offsets_;
  std::vector<Range> groups_;
  std::vector<at::Tensor> frozen_;
};

}  // namespace co2
