#include "flat/tensor_memory.h"

#include <c10/core/StorageImpl.h>
#include <co2/error.h>
#include <co2/parameters.h>

#include <algorithm>
#include <utility>

#include "base/best_fit.h"

namespace co2 {

namespace {

c10::DataPtr exchange_memory(const at::Tensor& tensor, c10::DataPtr data, std::int64_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  c10::DataPtr before = storage->set_data_ptr(std::move(data));
  storage->set_nbytes(static_cast<std::size_t>(bytes));
  return before;
}

}  // namespace

bool has_memory(const at::Tensor& tensor) {
  return tensor.numel() == 0 || !tensor.has_storage() || tensor.storage().nbytes() > 0;
}

void release_memory(const at::Tensor& parameter) {
  if (!parameter.defined() || !parameter.has_storage() || parameter.is_meta() || !has_memory(parameter)) return;
  if (parameter.storage().nbytes() != parameter.nbytes()) {
    throw OptionError("release_memory() of a tensor that is a part of a larger one, which would lose its memory too");
  }
  exchange_memory(parameter, c10::DataPtr(nullptr, parameter.device()), 0);
}

void TensorMemory::give(const at::Tensor& tensor, std::int64_t bytes) {
  auto block = take_best_fit(
      idle_, bytes, [](const Block& one) { return one.bytes; }, [this](const Block& one) { bytes_ -= one.bytes; });
  if (!block) {
    block = Block{c10::GetAllocator(device_.type())->allocate(static_cast<std::size_t>(bytes)), bytes};
    bytes_ += bytes;
  }
  used_.emplace_back(block->data.get(), block->bytes);
  exchange_memory(tensor, std::move(block->data), bytes);
}

void TensorMemory::take_back(const at::Tensor& tensor) {
  c10::DataPtr data = exchange_memory(tensor, c10::DataPtr(nullptr, device_), 0);
  const auto known = std::find_if(used_.begin(), used_.end(), [&](const auto& one) { return one.first == data.get(); });
  idle_.push_back({std::move(data), known->second});
  used_.erase(known);
}

void TensorMemory::trim() {
  for (const Block& block : idle_) bytes_ -= block.bytes;
  idle_.clear();
}

}  // namespace co2
