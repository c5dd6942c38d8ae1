#pragma once

#include <co2/communicator.h>
#include <co2/error.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace co2 {

/// Another worker could not do something that all must be able to do, and tells why itself.
class OtherFailed : public DataError {
 public:
  explicit OtherFailed(const std::string& what);
};

/// Blocking exchanges of small things between workers, for the moments before and after training and for evaluations.
/// All members are collective.
class Group {
 public:
  explicit Group(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}

  /// True if it is given true on all workers.
  bool agree(bool mine);

  /// Runs `body`; if it threw on any worker, all throw: that worker its own error, the others OtherFailed, that it
  /// could not do `what`. So nobody waits for a worker that has given up.
  void all_or_none(const std::string& what, const std::function<void()>& body);

  /// Sums over workers.
  std::vector<double> sum(const std::vector<double>& mine);

  /// The texts of all workers, by rank.
  std::vector<std::string> gather(const std::string& mine);

  void barrier();

 private:
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace co2
