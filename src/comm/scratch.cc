#include "comm/scratch.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "base/best_fit.h"

namespace co2 {

std::shared_ptr<const at::Tensor> Scratch::borrow(const at::Tensor& like) {
  const auto bytes = static_cast<std::int64_t>(like.nbytes());
  std::optional<at::Tensor> kept;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(idle_, [&](const at::Tensor& other) { return other.device() != like.device(); });
    kept = take_best_fit(
        idle_, bytes, [](const at::Tensor& block) { return block.numel(); }, [](const at::Tensor&) {});
  }
  const at::Tensor memory = kept ? *kept : at::empty({bytes}, at::TensorOptions(at::kByte).device(like.device()));
  const auto give_back = [self = shared_from_this(), memory](const at::Tensor* tensor) {
    delete tensor;
    const std::lock_guard lock(self->mutex_);
    self->idle_.push_back(memory);
  };
  return {new at::Tensor(memory.narrow(0, 0, bytes).view(like.scalar_type())), give_back};
}

}  // namespace co2
