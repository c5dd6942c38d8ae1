#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <vector>

namespace co2 {

/// Where each of some tensors stands in a list.
class Places {
 public:
  Places() = default;
  explicit Places(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) add(tensor, places_.size());
  }
  void add(const at::Tensor& tensor, std::size_t place) { places_.emplace(tensor.unsafeGetTensorImpl(), place); }
  std::size_t of(const at::Tensor& tensor, std::size_t otherwise) const {
    const auto found = places_.find(tensor.unsafeGetTensorImpl());
    return found == places_.end() ? otherwise : found->second;
  }
  /// Of a tensor that is not in the list: behind all others.
  std::size_t of(const at::Tensor& tensor) const { return of(tensor, places_.size()); }

 private:
  std::unordered_map<const void*, std::size_t> places_;
};

}  // namespace co2
