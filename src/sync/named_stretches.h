#pragma once

#include <ATen/core/Tensor.h>
#include <co2/parameters.h>
#include <co2/state.h>

#include <string>
#include <vector>

#include "flat/flat_parameters.h"
#include "flat/shard.h"

namespace co2 {

/// "weight", or "weight[10:20]" if only these of its elements are there, out of `numel`.
std::string stretch_name(const std::string& parameter, const Range& elements, std::int64_t numel);
/// That of the elements which a tensor of the inner optimizer has of one of these parameters.
std::string stretch_name(const TrainedTensor::Piece& piece, const std::vector<Parameter>& parameters);

/// Shows buffers that lie like the flat parameters, or like this worker's shard of them, by the names of the parameters
/// that they have elements of: whoever cuts the model in another way finds them again.
class NamedStretches {
 public:
  NamedStretches(const FlatParameters& flat, const Shard& shard, const TrainedModel& model)
      : flat_(flat), shard_(shard), model_(model) {}

  /// All of a buffer of either layout.
  void visit(StateVisitor& visitor, const std::string& name, const at::Tensor& buffer) const;
  /// A part of one that lies like the shard.
  void visit(StateVisitor& visitor, const std::string& name, const at::Tensor& buffer, const Range& part) const;

 private:
  const FlatParameters& flat_;
  const Shard& shard_;
  const TrainedModel& model_;
};

}  // namespace co2
