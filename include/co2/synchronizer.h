#pragma once

#include <co2/core.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace co2 {

/// Trains one torch::nn::Module on all workers of a cluster, with an optimizer of torch::optim. (For anything else:
/// Core.)
///
///     co2::Synchronizer sync(cluster, *model, optimizer, {.strategy = co2::Strategy::kCo2});
///     for (auto& batch : data) {
///       optimizer.zero_grad();
///       loss(model, batch).backward();
///       sync.step();
///     }
///     sync.finish();
///
/// The parameters that the optimizer updates are re-homed as views of one flat buffer; model, optimizer and cluster's
/// workers must outlive the Synchronizer. Everything is collective: all workers construct it with the same model and
/// options, and take the same number of steps.
///
/// Thread safety: used by one thread, the training thread. Transfers run on the communicator's threads.
/// Invariants: the consensus is the same on all workers, bit for bit; no exchange between islands ever touches live
/// parameters.
///
/// End with finish(). With ZeRO the model's parameters are otherwise not all on this worker (ZeRO 3: their memory is
/// not even there), and the optimizer holds this worker's shard instead of the model's parameters from the constructor
/// on, for good: a Synchronizer is made once per optimizer, and another one for it is refused. State that the optimizer
/// has by then stays, or is divided with the rest. A constructor that refuses leaves model and optimizer as they were,
/// apart from where the parameters are in memory.
///
/// Every backward pass belongs to a step: after accumulation_steps of them comes step(), skip_step() or
/// discard_gradients(), and a further backward pass throws OptionError in `ddp` and in islands. Parameters must stay in
/// the memory that the constructor gave them: no model.to() and no torch::load() after it, which step() notices.
class Synchronizer {
 public:
  /// Gives all workers rank 0's parameters and buffers, after checking that they have the same model and options.
  /// `first_values` is for parameters that have no memory yet (release_memory() in unit.h): with ZeRO 3 such a model is
  /// never whole on any worker. Called on rank 0 for one of them after the other, in the order of registration.
  Synchronizer(const Cluster& cluster, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
               const Options& options = {}, const FirstValues& first_values = {});
  /// Waits for collectives under way (bounded by the cluster's timeout), applies nothing.
  ~Synchronizer();
  Synchronizer(Synchronizer&&) noexcept;
  Synchronizer& operator=(Synchronizer&&) noexcept;

  /// The inner optimizer's step, and whatever is due between workers after it. `samples` is this worker's weight for
  /// the step: unequal batches (1e-9 to 1e9), or 0 to sit out. (`ddp` averages gradients equally, before the weight is
  /// known: there it must be 1, and all workers that share gradients must have the same rates.) Returns whether the
  /// inner optimizer has made its step: false if another worker of `ddp` or of the island has called skip_step().
  /// Throws CommError if an exchange that is due failed, or ConsensusError; once one of them was thrown, every further
  /// call that would use the network throws it again, forward and backward included.
  bool step(double samples = 1);

  /// In place of step(): leaves out the inner optimizer's step, say because the loss is not a number. What backward has
  /// done since the last step is dropped, if it has run at all; the step counts, and what is due between workers
  /// happens, with a weight of 0 for this worker. In `ddp` and in an island all workers leave out the step that one of
  /// them skips, and step() returns false there.
  void skip_step();

  /// Takes back all backward passes since the last step: drops their gradients, and counts no step. For gradients that
  /// are a by-product, as those that a discriminator gets when its generator learns. Collective in `ddp` and in an
  /// island: all its workers call it, in the same place. It costs the transfer of a step there; where it is known
  /// beforehand that gradients will not be wanted, set_requires_grad(false) on the parameters for that pass costs none.
  void discard_gradients();

  /// One more function to run in every step once the gradients are final (`ddp`: averaged) and before the inner
  /// optimizer uses them: the place for gradient clipping. They run in the order in which they were given.
  void before_inner_step(std::function<void()> hook);

  /// Applies what is in flight, then averages the live parameters and buffers of all workers, blocking. Afterwards all
  /// workers hold the same model, and training may go on. In `ddp` they must hold it already: parameters that differ by
  /// more than rounding are a ConsensusError. `none` exchanges nothing here either.
  void finish();

  /// The same, but with ZeRO 3 the parameters stay divided, and come and go in forward as in training: for a model that
  /// does not fit on one worker. each_parameter() shows it; torch::save() would write parameters without values.
  void finish_sharded();

  /// Shows the live parameters that are trained (frozen ones and buffers are whole everywhere, and a tied one is shown
  /// once, under its first name), whole, one after the other in the order of registration: gathered from
  /// the workers of an island, which call this together, where they are divided. For writing a model that does not fit
  /// on one worker; what is shown is gone after the visitor's call. After finish() or finish_sharded() it is the same
  /// on all workers. A visitor that throws leaves the others of its island waiting: let it only remember what went
  /// wrong.
  void each_parameter(const ParameterVisitor& visitor);

  /// Runs `body` with the consensus in the model's parameters, then puts the live parameters back. `none` and `ddp`
  /// have no consensus apart from the live parameters: the body runs on those. Its time does not count as computing.
  /// It must only read the model: parameters that it has changed are a ConsensusError, a step() in it an OptionError.
  void with_consensus(const std::function<void()>& body);

  /// What has happened since the last step() was no training (an evaluation outside of with_consensus(), saving a
  /// file): its time does not count as computing.
  void restart_clock();

  /// Shows all that defines the future of the run, the state of torch::optim's optimizers included, but not what you
  /// set yourself (rates): Core::visit() has the rules.
  void visit(StateVisitor& visitor);
  /// The same, for one that writes, without waiting for the network (Core::snapshot()).
  void snapshot(std::shared_ptr<StateVisitor> visitor, std::function<void(bool)> over);
  /// Takes over what a run of another layout has come to (Core::adopt()); for a Saver.
  void adopt(StateVisitor& visitor, const std::function<void()>& fill);
  /// The model that is trained, without its values; and what the optimizer updates (Core::trained()).
  const TrainedModel& outline() const;
  const std::vector<TrainedTensor>& trained() const;
  /// Waits for everything that is on the wire between islands, and applies nothing (Core::settle()).
  void settle();

  std::int64_t steps() const;      ///< steps taken
  std::int64_t rounds() const;     ///< rounds begun
  const Options& options() const;  ///< with blanks filled in; what is chosen while training: pace()
  const Options& asked() const;    ///< as they were given
  Pace pace() const;
  /// What the next step multiplies the optimizer's rates by (Options::rate_factor). The optimizer has the product only
  /// while it makes its own step; hooks, schedulers and you see the rates that you gave it.
  double rate_factor() const;
  Clipping clipping() const;
  std::int64_t left_out() const;  ///< Core::left_out()
  Trace& trace();

  /// Scales the gradients down to a 2-norm of at most `max_norm` over the whole model, whoever holds which part of
  /// them; returns the norm before. Collective in an island, and made for before_inner_step(). Throws OptionError
  /// unless max_norm is positive.
  double clip_gradients(double max_norm);

  /// The flat buffers: live parameters, and the consensus that all islands share (`none` and `ddp`: the live ones). In
  /// islands of several workers the consensus is that of this worker's shard; so are the live parameters at ZeRO 3, and
  /// when compute is bfloat16, which keeps the parameters themselves apart.
  const at::Tensor& live() const;
  const at::Tensor& consensus() const;
  /// What this worker has held so far for training. The optimizer's state is counted for those of torch::optim.
  MemoryUse memory() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace co2
