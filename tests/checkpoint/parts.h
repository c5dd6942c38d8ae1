#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/part.h"

namespace co2::checkpoint {

/// A small part with something of everything, all of it a function of step and worker.
inline Part part_of(std::int64_t step, int worker) {
  const auto value = static_cast<double>(100 * step + worker);
  return {.tensors = {{"weight", at::arange(6, at::kFloat).reshape({2, 3}) + value},
                      {"steps", at::full({}, step, at::kLong)},
                      {"mask", at::ones({3}, at::kBool)}},
          .integers = {{"step", step}, {"worker", worker}},
          .numbers = {{"rate", value / 3}},
          .texts = {{"task", "a \"text\""}}};
}

inline std::string bytes_of(const at::Tensor& tensor) {
  const auto data = tensor.contiguous();
  return {static_cast<const char*>(data.const_data_ptr()), data.nbytes()};
}

inline bool same_tensor(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && bytes_of(a) == bytes_of(b);
}

/// To the last bit: NaN is equal to itself.
inline bool same_part(const Part& a, const Part& b) {
  if (a.tensors.size() != b.tensors.size() || a.numbers.size() != b.numbers.size()) return false;
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    if (a.tensors[i].first != b.tensors[i].first || !same_tensor(a.tensors[i].second, b.tensors[i].second))
      return false;
  }
  for (auto one = a.numbers.begin(), other = b.numbers.begin(); one != a.numbers.end(); ++one, ++other) {
    if (one->first != other->first) return false;
    if (std::bit_cast<std::uint64_t>(one->second) != std::bit_cast<std::uint64_t>(other->second)) return false;
  }
  return a.integers == b.integers && a.texts == b.texts;
}

/// Writes and publishes a checkpoint of that many workers, each with its part_of(step, worker).
inline std::filesystem::path save(Checkpoints& checkpoints, std::int64_t step, int workers = 2) {
  const auto token = new_token();
  Manifest manifest{.step = step, .workers = workers, .about = {{"task", "test"}}};
  for (int worker = 0; worker < workers; ++worker) {
    manifest.files.push_back(write_part(checkpoints.begin(step, token), worker, part_of(step, worker)));
  }
  return checkpoints.publish(token, manifest);
}

/// Whether a checkpoint that verifies holds just what save() put there.
inline bool holds_what_was_saved(const std::filesystem::path& path, const Manifest& manifest) {
  for (int worker = 0; worker < manifest.workers; ++worker) {
    const auto& entry = file_of(manifest, worker, path);
    if (!same_part(read_part(path / entry.name, entry), part_of(manifest.step, worker))) return false;
  }
  return true;
}

}  // namespace co2::checkpoint
