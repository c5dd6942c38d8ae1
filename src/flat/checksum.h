#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace co2 {

/// Of the bits of a contiguous tensor. Equal tensors on equal devices have equal ones; it costs one pass over the
/// memory.
std::uint64_t checksum(const at::Tensor& tensor);

}  // namespace co2
