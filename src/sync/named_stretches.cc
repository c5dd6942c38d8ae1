#include "sync/named_stretches.h"

#include <fmt/format.h>

#include <algorithm>

namespace co2 {

std::string stretch_name(const std::string& parameter, const Range& elements, std::int64_t numel) {
  if (elements.size() == numel) return parameter;
  return fmt::format("{}[{}:{}]", parameter, elements.begin, elements.end);
}

std::string stretch_name(const TrainedTensor::Piece& piece, const std::vector<Parameter>& parameters) {
  const Parameter& parameter = parameters[piece.parameter];
  return stretch_name(parameter.name, {piece.begin, piece.begin + piece.size}, parameter.tensor.numel());
}

void NamedStretches::visit(StateVisitor& visitor, const std::string& name, const at::Tensor& buffer) const {
  if (buffer.numel() != flat_.numel()) return visit(visitor, name, buffer, {0, shard_.numel()});
  for (std::size_t i = 0; i < flat_.parameters().size(); ++i) {
    const Range where = flat_.where(i);
    visitor.tensor(name + "/" + model_.parameters[flat_.given(i)].name, buffer.narrow(0, where.begin, where.size()));
  }
}

void NamedStretches::visit(StateVisitor& visitor, const std::string& name, const at::Tensor& buffer,
                           const Range& part) const {
  for (const Shard::Segment& segment : shard_.segments_of(part)) {
    for (std::size_t i = 0; i < flat_.parameters().size(); ++i) {
      const Range where = flat_.where(i);
      const Range common{std::max(where.begin, segment.flat.begin), std::min(where.end, segment.flat.end)};
      if (common.size() <= 0) continue;
      const Range elements{common.begin - where.begin, common.end - where.begin};
      visitor.tensor(name + "/" + stretch_name(model_.parameters[flat_.given(i)].name, elements, where.size()),
                     buffer.narrow(0, segment.local.begin + common.begin - segment.flat.begin, common.size()));
    }
  }
}

}  // namespace co2
