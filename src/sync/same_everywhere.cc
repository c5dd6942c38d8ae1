#include "sync/same_everywhere.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "sync/block_wire.h"

namespace co2 {

namespace {

std::int64_t fingerprint(const std::string& text) {
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211ULL;
  std::int64_t result = 0;
  std::memcpy(&result, &hash, sizeof(result));
  return result;
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return ";";
  return fmt::format("{}[{}];", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ","));
}

/// The order of elements in memory, which is the order in which they travel. The step of a dimension of one is never
/// taken, and may be anything.
std::string memory_order(const at::Tensor& tensor) {
  std::string text;
  for (std::int64_t d = 0; d < tensor.dim(); ++d)
    text += fmt::format("{},", tensor.size(d) == 1 ? 0 : tensor.stride(d));
  return text + ";";
}

std::string describe(const FlatParameters& flat, const TrainedModel& model) {
  std::string text;
  for (const Parameter& parameter : model.parameters) {
    text += fmt::format("{} {} {}", parameter.name, describe(parameter.tensor), memory_order(parameter.tensor));
  }
  for (const auto& [name, buffer] : model.buffers) text += fmt::format("{} {}", name, describe(buffer));
  for (const at::Tensor& other : model.others) text += describe(other);
  for (const auto& [range, group] : flat.stretches()) text += fmt::format("{}-{} {};", range.begin, range.end, group);
  for (const Range& unit : flat.units()) text += fmt::format("{}-{};", unit.begin, unit.end);
  return text;
}

std::string describe(const Recipe& r) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}",
                     name(r.strategy), r.local_steps, r.fragments, r.delay.value_or(-1), r.outer_rate, r.momentum,
                     r.nesterov, r.rate_units, r.penalty, r.clip, name(r.clip_mode), name(r.restart), r.mix,
                     r.accumulation_steps, r.bucket_bytes, r.adaptive, r.max_local_steps, r.exchange_share,
                     name(r.wire), r.island_size, r.zero, name(r.compute), r.fixed_fragments, r.momentum_from,
                     r.adaptive_wire, r.checksum, r.agree_moments, r.rate_factor, r.eager, kBlockFormat);
}

}  // namespace

std::int64_t fingerprint_of(const FlatParameters& flat, const TrainedModel& model, const Recipe& recipe) {
  Recipe of_state = recipe;
  of_state.checksum = false;  // whether what arrives is compared changes no bit of it
  of_state.rate_factor = 0;   // another rate is no other state
  return fingerprint(describe(flat, model) + describe(of_state) + model.description);
}

void check_same_everywhere(Communicator& communicator, const FlatParameters& flat, const TrainedModel& model,
                           const Recipe& recipe) {
  constexpr std::array<std::string_view, 3> kSubjects{
      "another model (number, names, shapes, memory order, dtype or groups of its parameters, or its buffers)",
      "other options", "another kind of optimizer (its class, or amsgrad, centered, momentum)"};
  const at::Tensor mine = at::tensor(
      {fingerprint(describe(flat, model)), fingerprint(describe(recipe)), fingerprint(model.description)}, at::kLong);
  const at::Tensor all = at::empty({communicator.size() * mine.numel()}, at::kLong);
  communicator.all_gather(all, mine)->wait();
  const std::int64_t* values = all.data_ptr<std::int64_t>();
  for (int rank = 1; rank < communicator.size(); ++rank) {
    for (std::size_t i = 0; i < kSubjects.size(); ++i) {
      if (values[static_cast<std::size_t>(rank) * kSubjects.size() + i] == values[i]) continue;
      throw ClusterError(
          fmt::format("rank {} has {} than rank 0: start all workers with the same program and "
                      "the same options",
                      rank, kSubjects[i]));
    }
  }
}

}  // namespace co2
