#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace co2 {

/// Bytes of a tensor, as they are counted everywhere; an undefined one has none.
inline std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

/// Bytes held, and the most that were held at once.
class PeakBytes {
 public:
  void add(std::int64_t bytes) {
    now_ += bytes;
    most_ = std::max(most_, now_);
  }
  void remove(std::int64_t bytes) { now_ -= bytes; }
  std::int64_t most() const { return most_; }
  /// Goes back to an earlier most(): what was added since does not count.
  void forget_above(std::int64_t most) { most_ = most; }

 private:
  std::int64_t now_ = 0;
  std::int64_t most_ = 0;
};

}  // namespace co2
