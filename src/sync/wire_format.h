#pragma once

#include <co2/communicator.h>
#include <co2/options.h>
#include <co2/state.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/buckets.h"
#include "island/island.h"
#include "options/recipe.h"
#include "outer/outer_pass.h"
#include "sync/block_layout.h"

namespace co2 {

/// What one worker has on the wire for one fragment.
struct Message {
  at::Tensor payload;      ///< in wire form; belongs to the collectives until they are over
  at::Tensor sent;         ///< numbers: s, what the peers see of this worker's progress; undefined if nobody needs it
  at::Tensor received;     ///< blocks: what this worker adds up, of all workers
  at::Tensor added_up;     ///< blocks: the result
  at::Tensor sums;         ///< blocks: everybody's results; in the place of the payload if nobody needs what was sent
  double weight = 1;       ///< blocks: that the payload was multiplied by, if it is not all zeros
  std::int64_t numel = 0;  ///< of the fragment: the tensors may be longer
  std::shared_ptr<const BlockLayout> layout;  ///< blocks: where they are
  std::vector<WorkPtr> works;                 ///< under way or over, one per bucket; none: the sum is here
  std::int64_t bytes = 0;                     ///< that this worker sends for it
};

std::int64_t buffer_bytes(const Message& message);

/// The seam between what a worker wants to send, its progress d = consensus - live, and what goes on the wire. One that
/// takes several collectives (encode, exchange, add, exchange) starts them as one Work, which goes on in the background
/// by itself (comm/stages.h); what it needs besides the data group, it asks the island for.
///
/// Thread safety: used by the training thread.
class WireFormat {
 public:
  /// A stretch of a fragment.
  struct Progress {
    Range range;  ///< within the fragment; one after the other, they cover it
    at::Tensor consensus;
    at::Tensor live;
  };
  /// What goes with the progress of a fragment.
  struct Send {
    double weight = 0;
    Wire wire = Wire::kPlain;  ///< for a format that has several
    std::int64_t round = 0;
    std::int64_t where = 0;  ///< of the fragment's first element in the shard
  };
  /// What has been sent.
  struct Sent {
    std::vector<outer::LaunchNorms> norms;  ///< of each stretch, before it is weighed
    bool left_out = false;  ///< the progress is not finite, or too large to be added up: nothing of it was sent
  };
  /// A part of what has arrived.
  struct Arrived {
    Range range;  ///< within the fragment
    outer::Wired sum;
    outer::Wired sent;  ///< s: what this worker has put in; undefined if nobody needs it
  };

  virtual ~WireFormat() = default;
  /// Space for a fragment of at most so many elements in so many stretches, to be used again and again.
  virtual Message allocate(std::int64_t numel, std::size_t stretches, bool with_sent) const = 0;
  /// Takes a snapshot of the progress, weighs it and starts to add it up over all workers, in the background.
  virtual Sent start(Message& message, const std::vector<Progress>& progress, const Send& send) = 0;
  /// Σ w_i s_i of a stretch, once all works are over, in the form that it has on the wire: outer_pass.h reads it so.
  /// (And what was sent for it, which is there from the start.)
  virtual std::vector<Arrived> sum(const Message& message, const Range& stretch) const = 0;
  /// Bytes that this worker sends for so many elements. `wire`: for a format that has several.
  virtual std::int64_t wire_bytes(std::int64_t numel, Wire wire) const = 0;
  /// Shows what was sent, if somebody needs it. `message`, when it is read, is as allocate() made it.
  virtual void visit_sent(StateVisitor& visitor, const std::string& name, Message& message,
                          const std::vector<Range>& stretches) const = 0;
  /// Shows the sum of a message that has arrived; after what was sent.
  virtual void visit_sum(StateVisitor& visitor, const std::string& name, Message& message) const = 0;

  /// What rounding the sums has left behind, in units of mean progress: of the shard, and what this worker has of it.
  /// Whoever reads or changes it must have waited for everything in flight. Undefined if nothing ever is.
  virtual at::Tensor rest() const { return {}; }
  /// Drops all but a share of what rounding the sum of a message that has arrived left behind; `where`: as it was sent.
  virtual void scale_rest(const Message& /*message*/, std::int64_t /*where*/, double /*share*/) {}
  /// Processor time that its own threads have used so far.
  virtual double background_cpu_seconds() const { return 0; }

 protected:
  /// Lets `encode` put each stretch of the progress into its wire form, in `payload`, and what the peers will see of it
  /// into `sent`; it returns the stretch's squared norm. Who sits out, or has what can't be added up over so many
  /// workers in a dtype, sends nothing: both become zeros.
  static Sent snapshot(std::size_t stretches, double weight, int workers, at::ScalarType dtype,
                       const at::Tensor& payload, const at::Tensor& sent,
                       const std::function<outer::LaunchNorms(std::size_t)>& encode);
};

/// The wire of a recipe between islands, for a shard of so many elements that are like those of `like`.
std::unique_ptr<WireFormat> make_wire(const Recipe& recipe, const Island& island, const at::Tensor& like,
                                      std::int64_t numel);

/// Values in one dtype, added up by all-reduces: `plain` and `bfloat16`.
std::unique_ptr<WireFormat> make_summed_wire(Wire wire, std::shared_ptr<Communicator> communicator,
                                             const at::Tensor& like, std::int64_t bucket_bytes);

/// All-reduces a flat tensor in buckets of at most `bucket_bytes`.
std::vector<WorkPtr> all_reduce_in_buckets(Communicator& communicator, const at::Tensor& flat,
                                           std::int64_t bucket_bytes);

}  // namespace co2
