#pragma once

#include <co2/error.h>

#include <exception>

namespace co2 {

/// Remembers the first collective that failed, or a consensus that was broken: what the others did then is unknown, so
/// whoever goes on must meet the same error again, and neither train alone unawares nor be told of the confusion that
/// it has left behind.
///
/// Thread safety: used by the training thread and by the thread of backward, which must not overlap.
class FirstFailure {
 public:
  /// Runs `body` unless something has failed before; throws that failure otherwise.
  template <typename Body>
  decltype(auto) watch(const Body& body) {
    if (failure_) std::rethrow_exception(failure_);
    try {
      return body();
    } catch (const CommError&) {
      failure_ = std::current_exception();
      throw;
    } catch (const ConsensusError&) {
      failure_ = std::current_exception();
      throw;
    }
  }

 private:
  std::exception_ptr failure_;
};

}  // namespace co2
