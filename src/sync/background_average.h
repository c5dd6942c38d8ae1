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
/// norm's statistics, Adam's second moments. What was sent is replaced by the mean, so what a tensor has learned since
/// stays. All workers count the same. Whose numbers are not finite has no part in the mean, and takes it over.
///
/// Thread safety: used by the training thread. The tensors are never on the wire themselves.
class BackgroundAverage {
 public:
  using Tensors = std::vector<at::Tensor>;

  struct Form {
    std::vector<std::int64_t> sizes;  ///< elements of each tensor
    at::TensorOptions wire;           ///< dtype on the wire, and the tensors' device
    std::int64_t bucket_bytes = 0;    ///< about how much one collective carries
    bool never_negative = false;      ///< nor does rounding make them so
  };
  BackgroundAverage(std::shared_ptr<Communicator> communicator, Form form, Trace& trace);

  /// `tensors`: the same ones in both, in the same order. An undefined one counts as zeros, and stays undefined.
  void launch(const Tensors& tensors, std::int64_t round);
  void apply(const Tensors& tensors);
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
  at::Tensor payload_;  // one element more: how many took part
  bool took_part_ = false;
  bool in_flight_ = false;
  std::vector<WorkPtr> works_;  // none: what is in flight is here
  std::int64_t round_ = 0;
  Walk::Later later_;
};

}  // namespace co2
