#include "comm/scratch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace co2 {

/// The smallest that fits. If there is none, one that does not is given up, so that there are never more of them than
/// were used at once.
std::shared_ptr<const at::Tensor> Scratch::borrow(const at::Tensor& like) {
  const auto bytes = static_cast<std::int64_t>(like.nbytes());
  at::Tensor memory;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(idle_, [&](const at::Tensor& other) { return other.device() != like.device(); });
    std::sort(idle_.begin(), idle_.end(), [](const auto& a, const auto& b) { return a.numel() < b.numel(); });
    const auto fits = std::find_if(idle_.begin(), idle_.end(), [&](const auto& one) { return one.numel() >= bytes; });
    if (fits != idle_.end()) {
      memory = std::move(*fits);
      idle_.erase(fits);
    } else if (!idle_.empty()) {
      idle_.pop_back();
    }
  }
  if (!memory.defined()) memory = at::empty({bytes}, at::TensorOptions(at::kByte).device(like.device()));
  const auto give_back = [self = shared_from_this(), memory](const at::Tensor* tensor) {
    delete tensor;
    const std::lock_guard lock(self->mutex_);
    self->idle_.push_back(memory);
  };
  return {new at::Tensor(memory.narrow(0, 0, bytes).view(like.scalar_type())), give_back};
}

}  // namespace co2
