#include "train/data/windows.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "train/data/random.h"

namespace co2::train {

Windows::Windows(Corpus corpus, double validation_share, int context) : corpus_(std::move(corpus)), context_(context) {
  const auto size = static_cast<std::int64_t>(corpus_.text.size());
  split_ = size - std::llround(validation_share * static_cast<double>(size));
  const auto need = std::int64_t{context} + 1;
  if (training_bytes() >= need && validation_bytes() >= need) return;
  // Both parts: of a few bytes the share that is held out may be none.
  throw DataError(fmt::format(
      "the corpus {} is too short: of its {} bytes {} are for training and {} for validation (--validation-share {}), "
      "and a context of {} needs at least {} of each; take a longer text, a smaller --context or another "
      "--validation-share",
      corpus_.name, size, training_bytes(), validation_bytes(), validation_share, context, need));
}

Batch Windows::training(std::uint64_t seed, int rank, std::int64_t draw, int samples) const {
  const auto places = static_cast<std::uint64_t>(split_ - context_);
  std::vector<std::int64_t> starts;
  for (int i = 0; i < samples; ++i) {
    const auto number = mixed(
        {seed, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(draw), static_cast<std::uint64_t>(i)});
    starts.push_back(static_cast<std::int64_t>(number % places));
  }
  return read(starts);
}

std::vector<Batch> Windows::validation(int batches, int samples, int rank, int size) const {
  const std::int64_t room = (validation_bytes() - 1) / context_;  // windows that fit; each needs one byte beyond it
  const std::int64_t count = batches == 0 ? room : std::min(std::int64_t{batches} * samples, room);
  std::vector<Batch> result;
  for (std::int64_t first = std::int64_t{rank} * samples; first < count; first += std::int64_t{size} * samples) {
    std::vector<std::int64_t> starts;
    for (std::int64_t i = first; i < std::min(first + samples, count); ++i) {
      starts.push_back(split_ + i * room / count * context_);
    }
    result.push_back(read(starts));
  }
  return result;
}

Batch Windows::read(const std::vector<std::int64_t>& starts) const {
  const auto samples = static_cast<std::int64_t>(starts.size());
  Batch batch{at::empty({samples, context_}, at::kLong), at::empty({samples, context_}, at::kLong)};
  auto* tokens = batch.tokens.data_ptr<std::int64_t>();
  auto* targets = batch.targets.data_ptr<std::int64_t>();
  for (const auto start : starts) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(corpus_.text.data()) + start;
    tokens = std::copy_n(bytes, context_, tokens);
    targets = std::copy_n(bytes + 1, context_, targets);
  }
  return batch;
}

}  // namespace co2::train
