#include "flat/checksum.h"

#include <bit>
#include <cstring>

namespace co2 {

std::uint64_t checksum(const at::Tensor& tensor) {
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

}  // namespace co2
