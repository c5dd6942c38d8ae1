#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/buckets.h"

namespace torch::optim {
class Optimizer;
}

namespace co2 {

/// How the buffer is laid out for an island whose workers share it: as units, each of which can be cut into equal
/// parts.
struct FlatLayout {
  int parts = 1;                   ///< workers of the island
  std::int64_t unit_elements = 0;  ///< a unit ends with the parameter that fills it; 0: the whole model is one unit
};

/// The parameters that an optimizer trains, re-homed as views of one contiguous buffer: parameter groups in the
/// optimizer's order, parameters in order inside, each at a multiple of kAlignment elements with zeros in between, and
/// more zeros where a unit ends that could not be cut into equal, aligned parts otherwise.
/// Parameters that do not require a gradient stay where they are.
///
/// Invariant: every element of every trained parameter is in the buffer exactly once; padding stays zero, because all
/// that is ever done to the buffer is elementwise and maps zeros to zeros.
class FlatParameters {
 public:
  static constexpr std::int64_t kAlignment = 16;  // elements: 64 bytes of float32, a cache line

  /// Throws OptionError if there is nothing to train, or if dtypes or devices differ.
  explicit FlatParameters(torch::optim::Optimizer& optimizer, const FlatLayout& layout = {});

  const at::Tensor& data() const { return data_; }
  std::int64_t numel() const { return data_.numel(); }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// Where the i-th parameter is.
  Range where(std::size_t i) const { return {offsets_[i], offsets_[i] + parameters_[i].numel()}; }
  /// Where each parameter group is: consecutive, covering the whole buffer.
  const std::vector<Range>& groups() const { return groups_; }
  /// Where each unit is: consecutive, covering the whole buffer, none empty.
  const std::vector<Range>& units() const { return units_; }
  int parts() const { return parts_; }

  /// Makes the parameters views of `buffer`, which has the layout of data(). No element is copied.
  void point_to(const at::Tensor& buffer);

  /// Throws OptionError if a parameter that was left out has begun to require a gradient.
  void check_frozen() const;

 private:
  at::Tensor data_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::int64_t> offsets_;
  std::vector<Range> groups_;
  std::vector<Range> units_;
  int parts_ = 1;
  std::vector<at::Tensor> frozen_;
};

}  // namespace co2
