#include "train/checkpoint_weights.h"

#include <ATen/ATen.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <string_view>

#include "checkpoint/names.h"

namespace co2::train {

namespace {

/// "weight[10:20]" as "weight" and 10; "weight" begins at 0.
std::pair<std::string, std::int64_t> parameter_and_begin(const std::string& name) {
  const auto bracket = name.rfind('[');
  if (bracket == std::string::npos || !name.ends_with(']')) return {name, 0};
  std::int64_t begin = 0;
  const char* const first = name.data() + bracket + 1;
  const auto [after, problem] = std::from_chars(first, name.data() + name.size(), begin);
  if (problem != std::errc() || *after != ':') return {name, 0};
  return {name.substr(0, bracket), begin};
}

}  // namespace

CheckpointWeights::CheckpointWeights(const std::filesystem::path& checkpoint, const checkpoint::Manifest& manifest)
    : checkpoint_(checkpoint) {
  // `ddp` is one island of all workers, whose first has everything.
  const int island = std::clamp(manifest.island_size, 1, manifest.workers);
  for (int worker = 0; worker < island; ++worker) {
    files_.emplace_back(checkpoint / checkpoint::worker_file(worker),
                        checkpoint::file_of(manifest, worker, checkpoint));
  }
  for (const std::string_view prefix : {"consensus/", "live/"}) {
    for (std::size_t f = 0; f < files_.size(); ++f) {
      for (const checkpoint::TensorInfo& tensor : files_[f].header().tensors) {
        if (!tensor.name.starts_with(prefix)) continue;
        const auto [parameter, begin] = parameter_and_begin(tensor.name.substr(prefix.size()));
        const std::int64_t size =
            std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
        pieces_[parameter].push_back({f, tensor.name, begin, size});
      }
    }
    if (!pieces_.empty()) return;
  }
  throw DataError(fmt::format("{} has no weights in it: it is not of co2 train", checkpoint.string()));
}

at::Tensor CheckpointWeights::read(const std::string& parameter, std::int64_t numel) const {
  const auto found = pieces_.find(parameter);
  if (found == pieces_.end()) {
    throw DataError(
        fmt::format("{} has no weights of the name {}: it is of another model", checkpoint_.string(), parameter));
  }
  std::vector<Piece> pieces = found->second;
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  std::vector<at::Tensor> values;
  std::int64_t end = 0;
  for (const Piece& piece : pieces) {
    if (piece.begin != end) break;
    values.push_back(files_[piece.file].read(piece.name).reshape({-1}));
    end += piece.size;
  }
  if (end != numel) {
    throw DataError(fmt::format("{} has {} of the {} elements of {}: it is of another model", checkpoint_.string(), end,
                                numel, parameter));
  }
  return values.size() == 1 ? values.front() : at::cat(values);
}

}  // namespace co2::train
