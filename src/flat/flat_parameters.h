#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/buckets.h"

namespace torch::optim {
class Optimizer;
}

namespace co2 {

/// How the parameters are laid out for an island whose workers share them: as units, each of which can be cut into
/// equal parts. By default one unit, in the optimizer's order.
struct FlatLayout {
  int parts = 1;                                    ///< workers of the island
  std::vector<at::Tensor> order = {};               ///< of the parameters; those that it does not name come last
  std::int64_t unit_elements = 0;                   ///< a unit ends with the parameter that fills it; 0: never
  std::vector<std::vector<at::Tensor>> units = {};  ///< parameters that make units of their own, behind the others
};

/// The parameters that an optimizer trains, re-homed as views of one contiguous buffer: units one after the other, in
/// each of them one stretch per parameter group, each parameter at a multiple of kAlignment elements with zeros in
/// between, and more zeros where a unit ends that could not be cut into equal, aligned parts otherwise. A parameter's
/// elements keep their order in memory (channels_last, say). Parameters that do not require a gradient stay where they
/// are.
///
/// Invariant: every element of every trained parameter is in the buffer exactly once; padding stays zero, because all
/// that is ever done to the buffer is elementwise and maps zeros to zeros.
class FlatParameters {
 public:
  static constexpr std::int64_t kAlignment = 16;  // elements: 64 bytes of float32, a cache line

  /// Elements that belong to one parameter group.
  struct Stretch {
    Range range;
    std::size_t group = 0;
  };

  /// Throws OptionError if there is nothing to train, or if dtypes or devices differ. The optimizer must have passed
  /// check_trained().
  explicit FlatParameters(torch::optim::Optimizer& optimizer, const FlatLayout& layout = {});

  const at::Tensor& data() const { return data_; }
  std::int64_t numel() const { return units_.empty() ? 0 : units_.back().end; }
  at::TensorOptions options() const { return parameters_.front().options().requires_grad(false); }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// The unit of the i-th parameter, which must not be empty.
  std::size_t unit_of(std::size_t i) const;
  /// Where the i-th parameter is.
  Range where(std::size_t i) const { return {offsets_[i], offsets_[i] + parameters_[i].numel()}; }
  /// Consecutive, covering the whole buffer.
  const std::vector<Stretch>& stretches() const { return stretches_; }
  /// Where each unit is: consecutive, covering the whole buffer, none empty.
  const std::vector<Range>& units() const { return units_; }
  int parts() const { return parts_; }

  /// Makes the parameters views of `buffer`, which has the layout of data(). No element is copied.
  void point_to(const at::Tensor& buffer);

  /// The same values in another dtype: in data(), and in the parameters.
  void become(at::ScalarType dtype);

  /// Makes the parameters views of one buffer per unit, and gives data() up. No element is copied.
  void point_to_units(const std::vector<at::Tensor>& buffers);

  /// Throws OptionError if a parameter that was left out has begun to require a gradient.
  void check_frozen() const;
  /// Throws OptionError if somebody else has given a parameter other memory.
  void check_in_place() const;

 private:
  struct Entry {
    at::Tensor parameter;
    std::size_t group;
  };
  std::vector<Entry> trained(torch::optim::Optimizer& optimizer);
  void add_unit(std::vector<Entry> entries);
  void put(std::size_t i, const at::Tensor& elements);

  int parts_ = 1;
  at::Tensor data_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::int64_t> offsets_;
  std::vector<Stretch> stretches_;
  std::vector<Range> units_;
  std::vector<at::Tensor> frozen_;
  std::vector<const void*> homes_;  ///< the storage that each parameter is in
};

}  // namespace co2
