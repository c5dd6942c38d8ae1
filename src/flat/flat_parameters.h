#pragma once

#include <ATen/core/Tensor.h>
#include <co2/parameters.h>

#include <cstdint>
#include <vector>

#include "comm/buckets.h"

namespace co2 {

/// How the parameters are laid out for an island whose workers share them: as units, each of which can be cut into
/// equal parts. By default one unit.
struct FlatLayout {
  int parts = 1;                                     ///< workers of the island
  std::int64_t unit_elements = 0;                    ///< a unit ends with the parameter that fills it; 0: never
  std::vector<std::vector<std::size_t>> units = {};  ///< parameters that make units of their own, behind the others
  bool apart = false;                                ///< there is no common buffer: every unit is to have one
};

/// The parameters that are trained, re-homed as views of one contiguous buffer: units one after the other, in
/// each of them one stretch per parameter group, each parameter at a multiple of kAlignment elements with zeros in
/// between, and more zeros where a unit ends that could not be cut into equal, aligned parts otherwise. A parameter's
/// elements keep their order in memory (channels_last, say). Or no buffer of all of them is ever made, and they are
/// re-homed unit by unit (FlatLayout::apart); offsets are then those that they would have in it.
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

  /// The parameters must have passed check_parameters().
  explicit FlatParameters(const std::vector<Parameter>& parameters, const FlatLayout& layout = {});

  const at::Tensor& data() const { return data_; }  ///< undefined if they are apart
  std::int64_t numel() const { return units_.empty() ? 0 : units_.back().end; }
  at::TensorOptions options() const { return parameters_.front().options().requires_grad(false); }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// The place of the i-th one in the list that they were given in.
  std::size_t given(std::size_t i) const { return given_[i]; }
  /// Places in parameters(), in the order in which they were given.
  std::vector<std::size_t> in_given_order() const;
  /// The i-th one had no memory, and hence no values, when it was given.
  bool was_empty(std::size_t i) const { return was_empty_[i]; }
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

  /// The same for the parameters of one unit, and a buffer for that.
  void point_to_unit(std::size_t unit, const at::Tensor& buffer);

  /// Throws OptionError if somebody else has given a parameter other memory.
  void check_in_place() const;

 private:
  void add_unit(const std::vector<Parameter>& all, std::vector<std::size_t> members);
  void put(std::size_t i, const at::Tensor& elements);

  int parts_ = 1;
  at::Tensor data_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::size_t> given_;
  std::vector<bool> was_empty_;
  std::vector<std::int64_t> offsets_;
  std::vector<Stretch> stretches_;
  std::vector<Range> units_;
  std::vector<const void*> homes_;  ///< the storage that each parameter is in
};

}  // namespace co2
