#pragma once

#include <co2/cluster.h>
#include <co2/options.h>
#include <co2/trace.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "flat/shard.h"
#include "island/island.h"
#include "sync/fragment.h"
#include "sync/pace_control.h"
#include "sync/pace_meter.h"
#include "sync/round.h"
#include "sync/wire_format.h"

namespace co2 {

/// The exchange of progress in rounds, between islands: cuts this worker's shard of the model into fragments, launches
/// and applies each at its step, and, if the recipe is adaptive, chooses τ and P of every round from what was measured
/// before. It owns the consensus, the outer momentum and the exchanges in flight.
///
/// Thread safety: used by the training thread.
class ProgressExchange {
 public:
  /// `live` holds the live parameters of the shard of `flat`, and maybe others (Shard::view). `groups`: how many the
  /// optimizer has. `recipe` is kept up to date: local_steps and fragments are those in force.
  ProgressExchange(const Cluster& cluster, const Island& island, const FlatParameters& flat, const Shard& shard,
                   at::Tensor live, std::size_t groups, Recipe& recipe, Trace& trace);
  ~ProgressExchange();

  /// Everything that is due after an optimizer step. `rates`: the inner rates in force, one per parameter group;
  /// `compute_seconds`: how long the step took by itself. True if the step was the last one of a round.
  bool after_step(double samples, const std::vector<double>& rates, double compute_seconds);

  /// Applies what is in flight, then averages the live parameters of all workers, blocking.
  void finish();

  /// Parts of the shard whose live parameters the last call changed: the rest of the island must be told.
  const std::vector<Range>& changed() const { return changed_; }
  const at::Tensor& consensus() const { return consensus_; }  ///< of the shard
  /// Consensus and momentum.
  std::int64_t state_bytes() const;
  /// The most that exchanges in flight have taken.
  std::int64_t message_bytes() const { return std::max(most_message_bytes_, pool_->most_bytes()); }
  const Round& round() const { return round_; }
  const PaceControl* pace() const { return control_ ? &*control_ : nullptr; }
  const Clipping& clipping() const { return context_.clipping; }
  /// Bytes that this worker sends for one exchange of the whole model.
  std::int64_t bytes_per_exchange() const;

 private:
  void cut(int fragments);
  bool measuring() const { return meter_ && !control_; }
  void measure_first_steps();
  Round following_round();
  void begin(const Round& round);
  void apply_what_is_due();
  void launch_what_is_due(const Round& next);
  void apply(Fragment& fragment, MessagePool& pool, bool finishing);
  void apply_all_in_flight();
  void average_live_parameters();
  void compare_consensus() const;

  Recipe& recipe_;
  Trace& trace_;
  const FlatParameters& flat_;
  const Shard& shard_;
  const at::Tensor live_;
  std::shared_ptr<Communicator> communicator_;  // to the same shard in other islands
  const int wanted_fragments_;

  at::Tensor consensus_;
  at::Tensor momentum_;
  std::unique_ptr<WireFormat> wire_;
  ExchangeContext context_;
  std::unique_ptr<MessagePool> pool_;
  std::vector<Fragment> fragments_;
  // What was in flight when the model was cut anew is applied by the fragments that launched it.
  std::unique_ptr<MessagePool> old_pool_;
  std::vector<Fragment> old_fragments_;

  std::int64_t most_message_bytes_ = 0;  // of pools before this one
  std::vector<Range> changed_;
  std::int64_t steps_ = 0;
  Round round_;
  std::unique_ptr<PaceMeter> meter_;  // adaptive only
  std::optional<PaceControl> control_;
};

}  // namespace co2
