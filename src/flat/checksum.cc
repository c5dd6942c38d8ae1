#include "flat/checksum.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <bit>
#include <cstring>

namespace co2 {

namespace {

/// Words go to lanes in turn, so that their multiplications do not wait for each other: memory is the limit then.
std::uint64_t in_host_memory(const at::Tensor& tensor) {
  constexpr std::size_t kLanes = 4;
  const auto mixed = [](std::uint64_t hash, std::uint64_t word) {
    return std::rotl((hash ^ word) * 0xff51afd7ed558ccdULL, 31);
  };
  std::array<std::uint64_t, kLanes> lanes{0x9e3779b97f4a7c15ULL, 0xbf58476d1ce4e5b9ULL, 0x94d049bb133111ebULL,
                                          0xd6e8feb86659fd93ULL};
  const std::size_t bytes = tensor.nbytes();
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  std::array<std::uint64_t, kLanes> words{};
  std::size_t at = 0;
  for (; at + sizeof(words) <= bytes; at += sizeof(words)) {
    std::memcpy(words.data(), data + at, sizeof(words));
    for (std::size_t l = 0; l < kLanes; ++l) lanes[l] = mixed(lanes[l], words[l]);
  }
  words.fill(0);
  if (at < bytes) std::memcpy(words.data(), data + at, bytes - at);
  std::uint64_t hash = bytes;
  for (std::size_t l = 0; l < kLanes; ++l) hash = mixed(mixed(hash, lanes[l]), words[l]);
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
