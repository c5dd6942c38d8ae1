#pragma once

#include <co2/error.h>

#include <optional>

namespace co2 {

/// Remembers the first collective that failed, so that whoever goes on after it meets the same error again, and not the
/// confusion that it has left behind.
///
/// Thread safety: used by the training thread and by the thread of backward, which must not overlap.
class FirstFailure {
 public:
  /// Runs `body` unless something has failed before; throws that CommError otherwise.
  template <typename Body>
  decltype(auto) watch(const Body& body) {
    if (failure_) throw CommError(*failure_);
    try {
      return body();
    } catch (const CommError& failure) {
      failure_ = failure;
      throw;
    }
  }

 private:
  std::optional<CommError> failure_;
};

}  // namespace co2
