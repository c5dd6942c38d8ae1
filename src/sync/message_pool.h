#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sync/wire_format.h"
#include "trace/bytes.h"

namespace co2 {

/// Buffers for messages that go round: taken at a launch, given back at the apply.
class MessagePool {
 public:
  /// For fragments of at most so many elements in so many stretches: they differ a little, and all of them use the same
  /// buffers.
  MessagePool(const WireFormat& wire, std::int64_t numel, std::size_t stretches, bool with_sent)
      : wire_(wire), numel_(numel), stretches_(stretches), with_sent_(with_sent) {}
  Message take();
  void give_back(Message message);
  /// Frees the buffers that nobody has taken.
  void release();
  /// The most that it has held at once.
  std::int64_t most_bytes() const { return bytes_.most(); }

 private:
  const WireFormat& wire_;
  const std::int64_t numel_;
  const std::size_t stretches_;
  const bool with_sent_;
  PeakBytes bytes_;
  std::vector<Message> free_;
};

}  // namespace co2
