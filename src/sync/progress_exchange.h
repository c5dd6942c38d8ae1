#pragma once

#include <co2/communicator.h>
#include <co2/state.h>
#include <co2/trace.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "flat/shard.h"
#include "island/island.h"
#include "options/recipe.h"
#include "sync/fragment.h"
#include "sync/named_stretches.h"
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
  /// `live` holds the live parameters of the shard of `flat`, and maybe others (Shard::view). `groups`: how many rates
  /// there are. `control`: all workers, for small numbers. `workers_here`: on this host. `recipe` must stay.
  ProgressExchange(std::shared_ptr<Communicator> control, int workers_here, const Island& island,
                   const FlatParameters& flat, const Shard& shard, const NamedStretches& names, at::Tensor live,
                   std::size_t groups, const Recipe& recipe, std::unique_ptr<WireFormat> wire, Trace& trace);
  ~ProgressExchange();

  /// Everything that is due after an optimizer step. `rates`: the inner rates in force, one per parameter group;
  /// `compute_seconds`: how long the step took by itself. True if the step was the last one of a round.
  bool after_step(double samples, const std::vector<double>& rates, double compute_seconds);

  /// Applies what is in flight, then averages the live parameters of all workers, blocking.
  void finish();

  /// Waits for everything in flight, shows it to whoever waits for it, and applies nothing.
  void settle();
  /// Shows all that this remembers.
  void visit(Walk& walk, const std::string& name);
  /// Asks only for what belongs to no layout: consensus, momentum, rates. For a first round.
  void adopt(StateVisitor& visitor, const std::string& name);

  /// Parts of the shard whose live parameters the last call changed: the rest of the island must be told.
  const std::vector<Range>& changed() const { return changed_; }
  const at::Tensor& consensus() const { return consensus_; }  ///< of the shard
  /// Consensus, momentum, and what rounding has left behind.
  std::int64_t state_bytes() const;
  /// The most that exchanges in flight have taken.
  std::int64_t message_bytes() const { return std::max(most_message_bytes_, pool_->most_bytes()); }
  const Round& round() const { return round_; }
  const PaceControl* pace() const { return control_ ? &*control_ : nullptr; }
  const Clipping& clipping() const { return context_.clipping; }
  std::int64_t left_out() const { return context_.left_out; }
  /// Bytes that this worker sends for one exchange of the whole model.
  std::int64_t bytes_per_exchange() const;

 private:
  std::vector<Fragment> make_fragments(int count, const std::shared_ptr<MessagePool>& pool);
  std::shared_ptr<MessagePool> make_pool(int count) const;
  void cut(int fragments);
  bool measuring() const { return meter_ && !control_; }
  void measure_first_steps();
  void check_in_step(const std::string& name) const;
  PaceLimits limits() const;
  Round following_round();
  void begin(const Round& round);
  void apply_what_is_due();
  void launch_what_is_due(const Round& next);
  void apply(Fragment& fragment, bool finishing);
  void apply_all_in_flight();
  void average_live_parameters();
  void compare_consensus() const;

  const Recipe& recipe_;
  Trace& trace_;
  const FlatParameters& flat_;
  const Shard& shard_;
  const NamedStretches& names_;
  const at::Tensor live_;
  std::shared_ptr<Communicator> communicator_;  // to the same shard in other islands
  at::Tensor consensus_;
  at::Tensor momentum_;
  std::unique_ptr<WireFormat> wire_;
  const std::vector<WireChoice> wires_;  // that it may be asked for
  ExchangeContext context_;
  std::shared_ptr<MessagePool> pool_;
  std::vector<Fragment> fragments_;
  // What was in flight when the model was cut anew is applied by the fragments that launched it.
  std::shared_ptr<MessagePool> old_pool_;
  std::vector<Fragment> old_fragments_;

  std::int64_t most_message_bytes_ = 0;  // of pools before this one
  std::vector<Range> changed_;
  std::int64_t steps_ = 0;
  Round round_;
  std::unique_ptr<PaceMeter> meter_;  // adaptive only
  std::optional<PaceControl> control_;
};

}  // namespace co2
