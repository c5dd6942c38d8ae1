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
  /// Call in a handler: what is being handled has left things in a state that nobody may go on from.
  void remember() { failure_ = std::current_exception(); }

  /// Runs `body` unless something has failed before; throws that failure otherwise.
  template <typename Body>
  decltype(auto) watch(const Body& body) {
    if (failure_) std::rethrow_exception(failure_);
    try {
      return body();
    } catch (const CommError&) {
      remember();
      throw;
    } catch (const ConsensusError&) {
      remember();
      throw;
    }
  }

 private:
  std::exception_ptr failure_;
};

}  // namespace co2
