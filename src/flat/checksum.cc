#include "flat/checksum.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <bit>
#include <cstring>

namespace co2 {

namespace {

std::uint64_t in_host_memory(const at::Tensor& tensor) {
  std::uint64_t hash = 0x9e3779b97f4a7c15ULL;
  const auto add = [&](std::uint64_t word) { hash = std::rotl((hash ^ word) * 0xff51afd7ed558ccdULL, 31); };
  const std::size_t bytes = tensor.nbytes();
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  std::size_t at = 0;
  for (std::uint64_t word = 0; at + sizeof(word) <= bytes; at += sizeof(word)) {
    std::memcpy(&word, data + at, sizeof(word));
    add(word);
  }
  if (at < bytes) {
    std::uint64_t rest = 0;
    std::memcpy(&rest, data + at, bytes - at);
    add(rest);
  }
  return hash;
}

at::ScalarType integer_of(std::size_t bytes) {
  switch (bytes) {
    case 1: return at::kByte;
    case 2: return at::kShort;
    case 4: return at::kInt;
    default: return at::kLong;
  }
}

/// Where memory can't be read from here: the bits of every element, each with a factor of its own, in integers that
/// wrap around, so that the order of summation does not matter.
std::uint64_t on_a_device(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor bits = tensor.view(integer_of(tensor.element_size())).to(at::kLong);
  const at::Tensor factors = at::arange(1, 2 * bits.numel() + 1, 2, bits.options()).mul_(0x2545f4914f6cdd1dLL);
  return static_cast<std::uint64_t>(bits.mul(factors).sum().item<std::int64_t>());
}

}  // namespace

std::uint64_t checksum(const at::Tensor& tensor) {
  return tensor.is_cpu() ? in_host_memory(tensor) : on_a_device(tensor);
}

}  // namespace co2
