#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <vector>

namespace co2 {

/// Memory that collectives receive into, one after the other: kept for the next, because malloc would give such large
/// blocks back to the system and fetch them page by page again.
///
/// Thread safety: any thread may borrow() and give back.
class Scratch : public std::enable_shared_from_this<Scratch> {
 public:
  /// A one-dimensional tensor with as many elements as another one, and of its kind. It is given back when the last
  /// copy of the pointer is gone, and must not be used after that.
  std::shared_ptr<const at::Tensor> borrow(const at::Tensor& like);

 private:
  std::mutex mutex_;
  std::vector<at::Tensor> idle_;
};

}  // namespace co2
