#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <vector>

namespace co2 {

/// False for a tensor that has elements and no place for them.
bool has_memory(const at::Tensor& tensor);

/// Memory for tensors that come and go, on one device. What one gives back is kept for the next: malloc would give
/// large blocks back to the system and fetch them page by page again, or keep them where no other thread can use them.
///
/// Thread safety: none.
class TensorMemory {
 public:
  explicit TensorMemory(c10::Device device) : device_(device) {}

  /// Gives a tensor's storage, which has none, so many bytes of memory, with anything in it. Views of it stay views.
  void give(const at::Tensor& tensor, std::int64_t bytes);
  void take_back(const at::Tensor& tensor);
  /// Gives up what nobody uses.
  void trim();

  /// Of all of it, used and kept.
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Block {
    c10::DataPtr data;
    std::int64_t bytes = 0;
  };

  const c10::Device device_;
  std::vector<Block> idle_;
  std::vector<std::pair<const void*, std::int64_t>> used_;  ///< true sizes: a tensor may be smaller than its block
  std::int64_t bytes_ = 0;
};

}  // namespace co2
