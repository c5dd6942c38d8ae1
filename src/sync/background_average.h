#pragma once

#include <co2/communicator.h>
#include <co2/state.h>
#include <co2/trace.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sync/walk.h"

namespace co2 {

/// The mean over workers of tensors that go with the parameters, and move by themselves while it is on its way: batch
/// norm's statistics, Adam's second moments. What a tensor still has of what was sent is replaced by as much of the
/// mean, so what it has learned since stays. All workers count the same; but a tensor that a worker does not have yet,
/// or whose numbers are not finite, has no part in the mean, and the latter takes it over.
///
/// Thread safety: used by the training thread. The tensors are never on the wire themselves.
class BackgroundAverage {
 public:
  using Tensors = std::vector<at::Tensor>;

  struct Form {
    std::vector<std::int64_t> sizes;  ///< elements of each tensor
    at::TensorOptions wire;           ///< dtype on the wire, and the tensors' device
    std::int64_t bucket_bytes = 0;    ///< about how much one collective carries
  };
  BackgroundAverage(std::shared_ptr<Communicator> communicator, Form form, Trace& trace);

  /// `tensors`: the same ones in both, in the same order; undefined ones are not there yet. `kept`: the share of what
  /// was sent that is still in each of them, if that is known. Otherwise all of it: but then one that has forgotten
  /// some of it would lose what it no longer has, so what is never negative stays above the mean or its own.
  void launch(const Tensors& tensors, std::int64_t round);
  void apply(const Tensors& tensors, const std::vector<double>& kept = {});
  /// Throws CommError if what is under way has failed already. Never blocks.
  void check();
  void abandon() noexcept;
  /// Waits for what is in flight, and shows it to whoever waits for it.
  void settle();
  /// Shows what is in flight; the tensors themselves are somebody else's.
  void visit(Walk& walk, const std::string& name);
  std::int64_t bytes() const;

 private:
  template <typename Body>
  void for_each(const Tensors& tensors, const Body& body) const;

  std::shared_ptr<Communicator> communicator_;
  const Form form_;
  Trace& trace_;
  at::Tensor sent_;
  at::Tensor payload_;    // and then, for each tensor, how many took part
  at::Tensor took_part_;  // bool: which ones of this worker did
  bool in_flight_ = false;
  std::vector<WorkPtr> works_;  // none: what is in flight is here
  std::int64_t round_ = 0;
  Walk::Later later_;
};

}  // namespace co2
