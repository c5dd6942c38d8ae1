#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace co2::train {

/// The weights in a checkpoint that all workers share: the consensus, or, where there is none, the first worker's.
/// Those of one island are enough, however they lie on its workers; tensors are read one by one.
class CheckpointWeights {
 public:
  /// Reads headers only. Throws DataError.
  CheckpointWeights(const std::filesystem::path& checkpoint, const checkpoint::Manifest& manifest);

  /// A parameter, flat, put together if it is in parts. Throws DataError if not all of its elements are there.
  at::Tensor read(const std::string& parameter, std::int64_t numel) const;

  /// A statistic of the model that is not trained, such as batch norm's: the first worker's. Throws DataError.
  at::Tensor read_buffer(const std::string& name) const { return files_.front().read("buffers/" + name); }

 private:
  struct Piece {
    std::size_t file = 0;
    std::string name;
    std::int64_t begin = 0;
    std::int64_t size = 0;
  };
  std::filesystem::path checkpoint_;
  std::vector<checkpoint::SafetensorsFile> files_;
  std::map<std::string, std::vector<Piece>> pieces_;  // by parameter
};

}  // namespace co2::train
