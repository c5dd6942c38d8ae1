#pragma once

#include <co2/cluster.h>
#include <co2/memory.h>
#include <co2/options.h>
#include <co2/parameters.h>
#include <co2/state.h>
#include <co2/trace.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace co2 {

/// How often workers exchange, and the measurements that an automatic choice was made from (0 without one).
struct Pace {
  int local_steps = 0;                ///< τ in force
  int fragments = 0;                  ///< P in force
  Wire wire = Wire::kPlain;           ///< in force
  double step_seconds = 0;            ///< one optimizer step, on the slowest worker
  double transfer_seconds = 0;        ///< one exchange of the whole model on the wire
  double cost_seconds = 0;            ///< what one exchange takes from the computation
  bool bounded = false;               ///< the largest allowed τ is too small for this network
  double bits_per_second_needed = 0;  ///< that it would take to hide an exchange in the largest allowed τ
};

/// What the clip has taken from the exchanges so far.
struct Clipping {
  std::int64_t exchanges = 0;  ///< of one fragment each, that were applied with a clip
  std::int64_t clipped = 0;    ///< of which the clip took something
  double lost = 0;             ///< the shares that it took, added up: lost / clipped is their mean
};

/// Trains one model on all workers of a cluster: the heart, which knows tensors, rates and samples, and nothing of
/// modules and optimizers. For torch::nn and torch::optim use Synchronizer, which is a thin layer on it; for an
/// optimizer of your own, a list of tensors, or a binding to another language, use this:
///
///     co2::Core core(cluster, {.parameters = {{weight, "weight"}, {bias, "bias"}}});
///     for (auto& batch : data) {
///       loss(batch).backward();
///       if (core.begin_step({rate})) update(core.trained(), rate);     // the inner step, on tensors and their grad()
///       core.end_step({rate});                                         // whatever is due between workers
///     }
///     core.finish();
///
/// The parameters are re-homed as views of one flat buffer. Everything is collective: all workers construct it with the
/// same parameters and options, and take the same number of steps.
///
/// Thread safety: used by one thread, the training thread. Transfers run on the communicator's threads.
/// Invariants: the consensus is the same on all workers, bit for bit; no exchange between islands ever touches live
/// parameters.
///
/// Every backward pass belongs to a step: after accumulation_steps of them comes begin_step() or discard_gradients(),
/// and a further backward pass throws OptionError in `ddp` and in islands. Gradient hooks of yours stay in place.
/// Parameters must stay in the memory that the constructor gave them.
class Core {
 public:
  /// Gives all workers rank 0's values, after checking that they have the same model and options. One that refuses
  /// leaves everything as it was, apart from where the parameters are in memory.
  Core(const Cluster& cluster, TrainedModel model, const Options& options = {});
  /// Waits for collectives under way (bounded by the cluster's timeout), applies nothing.
  ~Core();
  Core(Core&&) noexcept;
  Core& operator=(Core&&) noexcept;

  /// What the inner optimizer updates, the same from the constructor on: the parameters, or, with ZeRO or compute =
  /// bfloat16, stretches of this worker's shard in their place. Then it must treat every element by itself.
  const std::vector<TrainedTensor>& trained() const;

  enum class Use {
    kStep,  ///< of the gradients: the inner step
    kSkip,  ///< they are dropped, and so they are on the workers that share them; the step counts, with a weight of 0
  };

  /// The first half of a step: gradients are final afterwards, and where the optimizer reads them. Returns whether the
  /// inner step is to be made: false if this worker or one that shares its gradients skips it. `rates`: the inner rate
  /// of every parameter group, 0 or positive. (Only `co2`, `co2-paper` and `slowmo` need them:
  /// for others it may be empty.) `samples` is this worker's weight for the step: unequal batches (1e-9 to
  /// 1e9), or 0 to sit out; 1 where gradients are shared.
  bool begin_step(const std::vector<double>& rates, double samples = 1, Use use = Use::kStep);
  /// The second half, after the inner step: whatever is due between workers. `rates`: those that the step was made
  /// with. Throws CommError if an exchange that is due failed, or ConsensusError; once one of them was thrown, every
  /// further call that would use the network throws it again, forward and backward included.
  void end_step(const std::vector<double>& rates);

  /// In place of end_step(), if the inner step could not be made (something threw): the step does not count.
  void cancel_step();

  /// Takes back all backward passes since the last step (Synchronizer::discard_gradients()).
  void discard_gradients();
  /// Scales final gradients down to a 2-norm of at most `max_norm` over the whole model
  /// (Synchronizer::clip_gradients()).
  double clip_gradients(double max_norm);

  /// Applies what is in flight, then averages, blocking (Synchronizer::finish()).
  void finish();
  /// The same, but parameters that ZeRO 3 has divided stay so (Synchronizer::finish_sharded()).
  void finish_sharded();
  /// Shows one whole parameter after the other (Synchronizer::each_parameter()).
  void each_parameter(const ParameterVisitor& visitor);
  /// Runs `body` with the consensus in the parameters (Synchronizer::with_consensus()).
  void with_consensus(const std::function<void()>& body);
  /// What has happened since the last step was no training: its time does not count as computing.
  void restart_clock();

  /// Waits for everything that is on the wire between islands, and applies nothing: it is applied when it is due. What
  /// a snapshot() waits for is shown.
  void settle();
  /// Shows all that defines the future of the run, but for the inner optimizer's own state and rates, to a visitor that
  /// writes it down or puts another run's in place. Between steps. Afterwards the run goes on as the other would have:
  /// to the same bits, if collectives add up in the same order and τ is not automatic. Collective; the layout (workers,
  /// islands, ZeRO) must be the same. If reading fails, with DataError or what the visitor throws, every further call
  /// throws it again: what is in place then is neither the one run nor the other.
  /// `inner`, if given, is called in the middle, to show the inner optimizer's state: with a visitor that has it
  /// written only once where several workers have the same.
  void visit(StateVisitor& visitor, const std::function<void(StateVisitor&)>& inner = {});
  /// The same for a visitor that writes, without waiting for the network: what is on the wire now is shown as soon as
  /// it is taken from there, by the step that applies it or by finish(). `over` is called when the visitor is not used
  /// any more: true if all was shown; false if the Core is gone, or the exchange failed, before that. Both are called
  /// on the training thread, and `over` must not throw.
  void snapshot(std::shared_ptr<StateVisitor> visitor, std::function<void(bool)> over,
                const std::function<void(StateVisitor&)>& inner = {});
  /// Takes over what a run of another layout has come to, for a Core that has taken no step: asks for steps,
  /// parameters, outer momentum, buffers and, through `inner`, the inner optimizer's state, of the elements that this
  /// worker has. `fill` is called when all was asked for; afterwards the values must be in place. Collective.
  void adopt(StateVisitor& visitor, const std::function<void(StateVisitor&)>& inner, const std::function<void()>& fill);

  std::int64_t steps() const;      ///< steps taken
  std::int64_t rounds() const;     ///< rounds begun
  const Options& options() const;  ///< with blanks filled in
  const Options& asked() const;    ///< as they were given
  Pace pace() const;
  Clipping clipping() const;
  /// Exchanges of a fragment that this worker had no part in, because its progress was not finite, or too large to be
  /// added up. The others went on without it; with Restart::kKeep its parameters stay what they are.
  std::int64_t left_out() const;
  Trace& trace();

  /// The flat buffers, in which parameters lie by group, each at a multiple of 16 elements: live parameters, and the
  /// consensus that all islands share (`none` and `ddp`: the live ones). In islands of several workers the consensus is
  /// that of this worker's shard; so are the live parameters at ZeRO 3, and when compute is bfloat16, which keeps the
  /// parameters themselves apart.
  const at::Tensor& live() const;
  const at::Tensor& consensus() const;
  /// What this worker has held so far for training, but for the inner optimizer's state.
  MemoryUse memory() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace co2
