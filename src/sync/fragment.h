#pragma once

#include <co2/options.h>
#include <co2/trace.h>

#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "comm/buckets.h"
#include "comm/transfer.h"
#include "sync/wire_format.h"
#include "trace/bytes.h"

namespace co2 {

/// Buffers for messages that go round: taken at a launch, given back at the apply.
class MessagePool {
 public:
  /// For fragments of at most `numel` elements: their sizes differ a little, and all of them use the same buffers.
  MessagePool(const WireFormat& wire, std::int64_t numel, bool with_sent)
      : wire_(wire), numel_(numel), with_sent_(with_sent) {}
  Message take();
  void give_back(Message message);
  /// Frees the buffers that nobody has taken.
  void release();
  /// The most that it has held at once.
  std::int64_t most_bytes() const { return bytes_.most(); }

 private:
  const WireFormat& wire_;
  const std::int64_t numel_;
  const bool with_sent_;
  PeakBytes bytes_;
  std::vector<Message> free_;
};

/// One fragment of the model, or of this worker's shard of it: its views of the buffers, and its exchanges in flight.
/// This is "One exchange" of docs/algorithm.md: launch() and apply() are the two halves.
class Fragment {
 public:
  /// A stretch whose live parameters are contiguous and belong to one parameter group.
  struct Part {
    Range range;        ///< within the fragment
    std::size_t group;  ///< for its rate
    at::Tensor live;
  };

  /// `where` it is in this worker's shard, and in `consensus` and `momentum`, which are the shard's. `island_sum` adds
  /// up what the workers that share the fragment have of a squared norm.
  Fragment(int index, const Recipe& recipe, const Range& where, const at::Tensor& consensus, const at::Tensor& momentum,
           std::vector<Part> parts, std::function<double(double)> island_sum);

  void add_samples(double samples) { weight_ += samples; }
  void forget_samples() { weight_ = 0; }
  double samples() const { return weight_; }
  const Range& where() const { return where_; }
  std::int64_t numel() const { return where_.size(); }

  /// Starts to exchange this worker's progress. `rates` are the inner rates in force, one per group.
  void launch(const WireFormat& wire, MessagePool& pool, const std::vector<double>& rates, std::int64_t apply_step,
              std::int64_t round);

  bool in_flight() const { return !in_flight_.empty(); }
  std::int64_t oldest_apply_step() const { return in_flight_.front().apply_step; }

  /// Waits for the oldest exchange in flight, moves the consensus by it and restarts the live parameters. `finishing`:
  /// the steps since the launch will not be exchanged any more, so no restart may drop them. Returns when the exchange
  /// was on the wire.
  TransferTime apply(const WireFormat& wire, MessagePool& pool, const std::vector<double>& rates, Trace& trace,
                     bool finishing = false);

  /// Waits for everything in flight and drops it; never throws.
  void abandon() noexcept;

 private:
  struct InFlight {
    Message message;
    std::vector<double> rates;  ///< γ_then, per group
    std::int64_t apply_step = 0;
    std::int64_t round = 0;
    double moved = 0;  ///< how far the consensus has moved since this progress was measured, ‖x_now - x_then‖
  };

  double staleness_gap(const InFlight& exchange, const WireFormat::Sum& sum) const;
  double momentum_scale(const InFlight& exchange, const WireFormat::Sum& sum, double gap) const;

  const int index_;
  const Recipe& recipe_;
  Range where_;
  at::Tensor consensus_;
  at::Tensor momentum_;
  std::vector<Part> parts_;
  std::function<double(double)> island_sum_;
  double weight_ = 0;  ///< samples since the last launch
  std::deque<InFlight> in_flight_;
};

}  // namespace co2
