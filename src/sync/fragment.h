#pragma once

#include <co2/core.h>
#include <co2/state.h>
#include <co2/trace.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/buckets.h"
#include "comm/transfer.h"
#include "options/recipe.h"
#include "sync/eager.h"
#include "sync/header.h"
#include "sync/known_parameters.h"
#include "sync/message_pool.h"
#include "sync/residue.h"
#include "sync/since_launch.h"
#include "sync/trained_here.h"
#include "sync/usual_progress.h"
#include "sync/walk.h"
#include "sync/wire_format.h"

namespace co2 {

/// What all fragments of an exchange share.
struct ExchangeContext {
  const Recipe& recipe;  ///< never changes
  WireFormat& wire;
  Communicator& control;                     ///< for headers, to the workers that have the same shard
  std::function<double(double)> island_sum;  ///< adds up what the workers that share a fragment have of a squared norm
  Trace& trace;
  /// Shows what rounding has left behind in a part of the shard.
  std::function<void(StateVisitor&, const Range&)> visit_rest;
  std::vector<double> last_rates;  ///< the last positive γ that was agreed on, per parameter group
  Clipping clipping;
  std::int64_t left_out;  ///< exchanges that this worker's progress had no part in, because it was not finite
};

/// What the round decides about an exchange that it launches. It goes with the exchange.
struct Launch {
  std::int64_t round = 0;
  std::int64_t apply_step = 0;  ///< when it is due
  double momentum = 0;          ///< β
  Wire wire = Wire::kPlain;
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
    std::vector<std::int64_t> parameters;  ///< where each parameter in it begins, within the fragment
  };

  /// `where` it is in this worker's shard, and in `consensus` and `momentum`, which are the shard's.
  Fragment(int index, ExchangeContext& context, std::shared_ptr<MessagePool> pool, const Range& where,
           const at::Tensor& consensus, const at::Tensor& momentum, std::vector<Part> parts);

  void add_step(double samples, const std::vector<double>& rates) { since_launch_.add_step(samples, rates); }
  /// All live parameters are the consensus again.
  void forget_progress();
  /// Somebody has put a momentum in place.
  void momentum_was_set() { momentum_rests_ = false; }
  /// Another cut of the model: this fragment has `share` of its elements from `old`.
  void inherit(const Fragment& old, double share);
  const Range& where() const { return where_; }
  std::int64_t numel() const { return where_.size(); }
  /// This worker's progress was left out when it was last launched, and is still with it.
  bool keeps_what_was_left_out() const { return left_out_ && recipe_.restart == Restart::kKeep; }

  /// Starts to exchange this worker's progress.
  void launch(const Launch& launch);

  /// After the launch, and the apply that goes with it: where the strategy is eager.
  void go_ahead();

  bool in_flight() const { return !in_flight_.empty(); }
  std::int64_t oldest_apply_step() const { return in_flight_.front().launch.apply_step; }
  Wire oldest_wire() const { return in_flight_.front().launch.wire; }

  /// Waits for the oldest exchange in flight, moves the consensus by it and restarts the live parameters. `finishing`:
  /// the steps since the launch will not be exchanged any more, so no restart may drop them. Returns when the exchange
  /// was on the wire. Throws CommError or ConsensusError, and has changed nothing then.
  TransferTime apply(bool finishing = false);

  /// Waits for everything in flight, shows it to whoever waits for it, and applies nothing. Throws CommError.
  void settle();
  /// Shows what it remembers and what is in flight; `with_rest`: and what rounding has left behind.
  void visit(Walk& walk, const std::string& name, bool with_rest);
  /// The same, if somebody waits for it: a further exchange of these elements would change what rounding has left
  /// behind.
  void show_what_arrives();

  /// What an eager strategy remembers.
  std::int64_t eager_bytes() const { return eager_ ? eager_->bytes() : 0; }

  /// Waits for everything in flight and drops it; never throws.
  void abandon() noexcept;

 private:
  struct InFlight {
    Message message;
    at::Tensor header;
    WorkPtr header_work;  ///< null: the header is here
    Launch launch;
    double steps = 0;   ///< that the progress was made in
    double moved = 0;   ///< how far the consensus has moved since this progress was measured, ‖x_now - x_then‖
    at::Tensor left;    ///< what rounding has left of this worker's part, if that may be a burst; otherwise undefined
    Walk::Later later;  ///< what is to be shown of it once it is here
  };
  /// The sum of all workers' progress, and all that it takes to apply it: the same on all of them.
  struct Arrived {
    std::vector<std::vector<WireFormat::Arrived>> sum;  ///< of each part of the fragment
    double total_weight = 0;
    std::vector<double> rates;    ///< γ, per parameter group
    double scale = 0;             ///< of the sum: 1 / (Σw Λ), and less if it is a burst
    double burst = 1;             ///< b: by how much less
    std::vector<double> sizes;    ///< of what workers have sent, in units of the rates at which it was made, per group
    std::vector<double> trained;  ///< how many workers have trained each parameter
  };
  Arrived arrived(const InFlight& exchange);
  double staleness_gap(const InFlight& exchange, const Arrived& arrived) const;
  double momentum_scale(const InFlight& exchange, const Arrived& arrived) const;
  std::vector<double> memorable_shares(const InFlight& exchange, const Arrived& arrived) const;
  at::Tensor momentum_for(const outer::Move& move);
  std::size_t parameter_count() const;
  std::vector<at::Tensor> live_parameters() const;
  std::vector<Range> parameters_in_shard() const;
  Header header_of(const WireFormat::Sent& sent, const Launch& launch);
  bool looks_for_bursts() const { return recipe_.clip > 0 && recipe_.clip_mode == ClipMode::kUsual; }
  std::vector<double> known_progress(const WireFormat::Sent& sent, const std::vector<bool>& sure);
  at::Tensor what_rounding_leaves(const Message& message) const;
  void drop_what_a_burst_left(const InFlight& exchange, double burst);
  std::vector<double> trained_here(bool sends);
  void rest_what_nobody_trains(const Arrived& arrived) const;
  std::size_t rates_told() const { return recipe_.rate_units ? context_.last_rates.size() : 0; }
  std::size_t sizes_told(const Launch& launch) const { return launch.momentum > 0 ? context_.last_rates.size() : 0; }
  template <typename Body>
  static void for_each_parameter_of(const Part& part, const Body& body);
  template <typename Body>
  void for_each_parameter(const Body& body) const;
  std::vector<Range> stretches() const;
  void count_clipped(double share);

  template <typename Change>
  void change_live(const Change& change);

  const int index_;
  ExchangeContext& context_;
  const Recipe& recipe_;
  std::shared_ptr<MessagePool> pool_;
  Range where_;
  at::Tensor consensus_;
  at::Tensor momentum_;
  std::vector<Part> parts_;
  SinceLaunch since_launch_;
  std::vector<Residue> residues_;  // per parameter group; of a wire that rounds, if what that leaves is kept
  TrainedHere trained_here_;       // while there is momentum
  UsualProgress usual_;
  KnownParameters known_;  // while bursts are looked for
  std::optional<Eager> eager_;
  bool left_out_ = false;
  bool momentum_rests_ = true;  // it is known to be 0
  std::int64_t launches_ = 0;
  std::deque<InFlight> in_flight_;
};

}  // namespace co2
