#pragma once

#include <co2/communicator.h>
#include <co2/options.h>
#include <co2/state.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/buckets.h"

namespace co2 {

/// What one worker has on the wire for one fragment.
struct Message {
  at::Tensor payload;      ///< in wire form; belongs to the collectives until they are over
  at::Tensor sent;         ///< s: what the peers see of this worker's progress; undefined if the restart needs it not
  std::int64_t numel = 0;  ///< of the fragment: both tensors may be longer
  std::vector<WorkPtr> works;  ///< under way or over, one per bucket; none: the sum is here
  std::int64_t bytes = 0;      ///< that this worker sends for it
};

/// The seam between what a worker wants to send, its progress d = consensus - live, and what goes on the wire. A codec
/// is another implementation of this. One that takes several collectives (encode, exchange, add, exchange, decode)
/// starts them as one Work, which goes on in the background by itself (comm/stages.h); what it needs besides the data
/// group, it asks the island for.
class WireFormat {
 public:
  /// A stretch of a fragment.
  struct Progress {
    Range range;  ///< within the fragment; one after the other, they cover it
    at::Tensor consensus;
    at::Tensor live;
  };

  virtual ~WireFormat() = default;
  /// Space for a fragment of at most `numel` elements, to be used again and again.
  virtual Message allocate(std::int64_t numel, bool with_sent) const = 0;
  /// Takes a snapshot of the progress, weighs it and starts to add it up over all workers, in the background. Returns
  /// the squared norm of what it sends of each stretch, as its peers see it and before it is weighed.
  virtual std::vector<double> start(Message& message, const std::vector<Progress>& progress, double weight) const = 0;
  /// Σ w_i s_i once all works are over, in the wire's dtype: outer_pass.h reads it as it is.
  virtual at::Tensor sum(const Message& message) const = 0;
  /// Bytes that this worker sends for so many elements.
  virtual std::int64_t wire_bytes(std::int64_t numel) const = 0;
  /// What it remembers from one exchange to the next, if it does.
  virtual void visit(StateVisitor& /*visitor*/, const std::string& /*name*/) {}
};

/// The wire of a recipe for parameters like `like`. Throws OptionError if it has no meaning for their dtype.
std::unique_ptr<WireFormat> make_wire(Wire wire, std::shared_ptr<Communicator> communicator, const at::Tensor& like,
                                      std::int64_t bucket_bytes);

/// All-reduces a flat tensor in buckets of at most `bucket_bytes`.
std::vector<WorkPtr> all_reduce_in_buckets(Communicator& communicator, const at::Tensor& flat,
                                           std::int64_t bucket_bytes);

}  // namespace co2
