#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/error.h>
#include <co2/synchronizer.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "comm/first_failure.h"
#include "comm/wire_dtype.h"
#include "flat/check_trained.h"
#include "flat/flat_parameters.h"
#include "flat/shard.h"
#include "island/forward_parameters.h"
#include "island/gradient_reducer.h"
#include "island/gradients.h"
#include "island/island.h"
#include "island/layout.h"
#include "island/optimizer_state.h"
#include "island/parameter_units.h"
#include "island/placed.h"
#include "island/same_parameters.h"
#include "island/sharded_gradients.h"
#include "island/whole_parameters.h"
#include "sync/buffer_average.h"
#include "sync/progress_exchange.h"
#include "sync/same_everywhere.h"

namespace co2 {

class Synchronizer::Impl {
 public:
  Impl(const Cluster& cluster, torch::nn::Module& model, torch::optim::Optimizer& optimizer, const Options& options);
  ~Impl();

  bool step(double samples, Gradients::Use use);
  void finish();
  void with_consensus(const std::function<void()>& body);
  void restart_clock() { last_return_ = Clock::now(); }
  /// What changes the model, or waits for the others, is not for the body of with_consensus().
  template <typename Call>
  decltype(auto) outside(const char* function, const Call& call) {
    if (in_consensus_) {
      throw OptionError(fmt::format(
          "{}() in the function that was given to with_consensus(), which may only read the model: call it after that",
          function));
    }
    return failure_.watch(call);
  }
  const at::Tensor& live() const { return parameters_->live(); }
  const at::Tensor& consensus() const { return exchange_ ? exchange_->consensus() : live(); }
  std::int64_t rounds() const;
  Pace pace() const;
  MemoryUse memory() const;
  std::int64_t round_now() const;  // of the step that is being taken, or was taken last

  Recipe recipe_;
  Trace trace_;
  FirstFailure failure_;
  bool in_consensus_ = false;  // with_consensus()'s body is running
  std::function<void()> before_inner_step_;
  std::int64_t steps_ = 0;
  std::shared_ptr<Communicator> communicator_;  // all workers
  Island island_;
  std::vector<UnitModule*> units_;
  FlatParameters flat_;
  Shard shard_;
  // A step: backward's gradients reach the inner optimizer, it changes live parameters, the exchange between islands
  // changes them again, and forward gets to see that.
  std::unique_ptr<ForwardParameters> parameters_;
  std::unique_ptr<Gradients> gradients_;
  std::unique_ptr<ProgressExchange> exchange_;  // null for `none` and `ddp`

 private:
  /// Then all workers of a group hold the same live parameters.
  bool shares_whole_gradients() const;
  void make_parameters();
  void make_gradients(const torch::nn::Module& model);
  std::vector<Witness> witnesses();
  void check_samples(double samples) const;
  void check_optimizer() const;
  void read_rates();

  torch::optim::Optimizer& optimizer_;
  std::unique_ptr<BufferAverage> buffers_;
  std::vector<std::size_t> group_sizes_;  // parameters that the optimizer has, per group
  std::vector<double> rates_;             // the inner rate in force, per parameter group
  std::int64_t votes_ = 0;                // that workers who share gradients have held
  Clock::time_point last_return_ = Clock::now();
};

namespace {

/// The optimizer trains the shard in place of the model's parameters.
bool trains_shard(const Recipe& recipe) { return recipe.zero > 0 || recipe.compute == Compute::kBfloat16; }

/// Not every optimizer has one to tell.
std::optional<double> rate_of(const torch::optim::OptimizerParamGroup& group) {
  try {
    return group.options().get_lr();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

/// What can be refused is refused here, before the model and the optimizer are changed in any way.
Recipe checked(const Options& options, const Cluster& cluster, const torch::nn::Module& model,
               const torch::optim::Optimizer& optimizer) {
  Recipe recipe = placed(resolve(options), cluster.size());
  if (dynamic_cast<const torch::optim::LBFGS*>(&optimizer) != nullptr) {
    throw OptionError("LBFGS evaluates the loss inside its step, which step() can't do: use another optimizer");
  }
  check_trained(model, optimizer);
  if (trains_shard(recipe)) check_elementwise(optimizer);
  return recipe;
}

}  // namespace

Synchronizer::Impl::Impl(const Cluster& cluster, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                         const Options& options)
    : recipe_(checked(options, cluster, model, optimizer)),
      communicator_(cluster.communicator("data")),
      island_(cluster, recipe_.island_size, communicator_),
      units_(recipe_.island_size > 1 ? units_of(model, optimizer) : std::vector<UnitModule*>{}),
      flat_(optimizer, layout_for(recipe_, model, units_)),
      shard_(flat_, flat_.parts() == 1 ? 0 : island_.rank()),
      optimizer_(optimizer),
      rates_(optimizer.param_groups().size(), 1.0) {
  // What may throw does it before anything is taken apart.
  if (recipe_.compute == Compute::kBfloat16 && flat_.data().scalar_type() != at::kFloat) {
    throw OptionError(fmt::format("compute = bfloat16 needs parameters of Float, but these are {}",
                                  c10::toString(flat_.data().scalar_type())));
  }
  if (recipe_.exchange == Recipe::Exchange::kProgress) wire_dtype(recipe_.wire, flat_.data().scalar_type());
  read_rates();
  check_same_everywhere(*communicator_, flat_, model, optimizer, recipe_);
  start_the_same(*communicator_, flat_, model, recipe_.bucket_bytes);
  make_parameters();
  make_gradients(model);
  for (const auto& group : optimizer_.param_groups()) group_sizes_.push_back(group.params().size());
  const auto with = recipe_.exchange == Recipe::Exchange::kNothing ? island_.inside() : communicator_;
  if (with) buffers_ = std::make_unique<BufferAverage>(with, model.buffers(), trace_);
  if (recipe_.exchange == Recipe::Exchange::kProgress) {
    exchange_ =
        std::make_unique<ProgressExchange>(cluster, island_, flat_, shard_, live(), rates_.size(), recipe_, trace_);
  }
}

void Synchronizer::Impl::make_parameters() {
  const at::NoGradGuard no_grad;
  const bool narrow = recipe_.compute == Compute::kBfloat16;
  const at::ScalarType compute = narrow ? at::kBFloat16 : flat_.data().scalar_type();
  if (recipe_.zero == 3) {
    parameters_ = std::make_unique<ParameterUnits>(island_, flat_, shard_, compute, units_, failure_, trace_);
  } else {
    parameters_ = std::make_unique<WholeParameters>(island_, flat_, shard_, compute, units_, trace_);
  }
}

bool Synchronizer::Impl::shares_whole_gradients() const {
  return !trains_shard(recipe_) && (recipe_.exchange == Recipe::Exchange::kGradients || island_.size() > 1);
}

void Synchronizer::Impl::make_gradients(const torch::nn::Module& model) {
  if (trains_shard(recipe_)) {
    auto gradients = std::make_unique<ShardedGradients>(
        island_, flat_, shard_, live(), optimizer_, recipe_.accumulation_steps, recipe_.zero >= 2,
        [this] { return witnesses(); }, failure_, trace_);
    if (auto* units = dynamic_cast<ParameterUnits*>(parameters_.get())) {
      gradients->tell([units](std::size_t unit) { units->got_gradient(unit); },
                      [units, passes = recipe_.accumulation_steps] { units->passes_over(passes); });
      units->on_passed([gradients = gradients.get()](std::size_t u, int passes) { gradients->close(u, passes); });
    }
    gradients_ = std::move(gradients);
  } else if (shares_whole_gradients()) {
    const auto group = island_.inside() ? island_.inside() : communicator_;
    gradients_ = std::make_unique<GradientReducer>(
        group, in_model_order(flat_.parameters(), model), recipe_.bucket_bytes, recipe_.accumulation_steps,
        [this] { return witnesses(); }, failure_, trace_);
  } else {
    gradients_ = std::make_unique<OwnGradients>(flat_.parameters());
  }
}

Synchronizer::Impl::~Impl() {
  if (buffers_) buffers_->abandon();
}

void Synchronizer::Impl::read_rates() {
  if (!recipe_.rate_units) return;
  const auto& groups = optimizer_.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::optional<double> rate = rate_of(groups[g]);
    if (!rate) {
      throw OptionError(
          fmt::format("strategy {} needs the optimizer's learning rate, which this one does not tell (its options have "
                      "no get_lr())",
                      name(recipe_.strategy)));
    }
    if (!(*rate >= 0 && std::isfinite(*rate))) {
      throw OptionError(
          fmt::format("the learning rate of parameter group {} is {}: it must be 0 or a positive number", g, *rate));
    }
    rates_[g] = *rate;
  }
}

/// What must be the same on all workers that share gradients, so that they go on with the same parameters, or with
/// parts of one model that were all trained alike.
std::vector<Witness> Synchronizer::Impl::witnesses() {
  std::vector<Witness> result;
  const auto& groups = optimizer_.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    result.push_back({.value = rate_of(groups[g]).value_or(0), .tolerance = 1e-9, .differs = [g](double a, double b) {
                        throw OptionError(fmt::format(
                            "the learning rate of parameter group {} is from {} to {} on workers that share gradients: "
                            "give all of them the same schedule",
                            g, a, b));
                      }});
  }
  if (shares_whole_gradients()) {
    parameters_->settle();
    result.push_back(same_parameters(live(), votes_++));
  }
  return result;
}

std::int64_t Synchronizer::Impl::round_now() const {
  if (exchange_) return exchange_->round().number;
  return steps_ / recipe_.local_steps;
}

void Synchronizer::Impl::check_samples(double samples) const {
  // Progress travels multiplied by its weight, in numbers that have no room for more.
  constexpr double kMost = 1e9;
  if (samples != 0 && !(samples >= 1 / kMost && samples <= kMost)) {
    throw OptionError(
        fmt::format("samples = {} is not allowed: it must be 0, or from {:g} to {:g}", samples, 1 / kMost, kMost));
  }
  if (gradients_->averaged() && samples != 1) {
    throw OptionError(
        "ddp and islands average gradients equally, before step() could weigh them: call step() without samples, "
        "and weigh the loss instead");
  }
}

/// What the optimizer trains is laid out once, when the Synchronizer is made.
void Synchronizer::Impl::check_optimizer() const {
  flat_.check_frozen();
  flat_.check_in_place();
  const auto& groups = optimizer_.param_groups();
  const bool same = std::equal(groups.begin(), groups.end(), group_sizes_.begin(), group_sizes_.end(),
                               [](const auto& group, std::size_t size) { return group.params().size() == size; });
  if (!same) {
    throw OptionError(
        "parameters were added to the optimizer, or taken from it, after the Synchronizer was made: they would not be "
        "exchanged. Make the Synchronizer after the last change of its parameter groups");
  }
}

bool Synchronizer::Impl::step(double samples, Gradients::Use use) {
  check_samples(samples);
  check_optimizer();
  const std::int64_t round = round_now();
  Clock::duration computing{0};
  if (gradients_->averaged()) {
    const Clock::time_point backward_over = Clock::now();
    computing = backward_over - last_return_;
    trace_.record({SpanKind::kCompute, last_return_, backward_over, round, -1, 0});
  }
  const bool update = gradients_->finish(round, use);
  if (gradients_->averaged()) last_return_ = Clock::now();
  if (update && before_inner_step_) before_inner_step_();
  parameters_->settle();
  if (update) optimizer_.step();
  ++steps_;
  const Clock::time_point computed = Clock::now();
  trace_.record({SpanKind::kCompute, last_return_, computed, round, -1, 0});

  const at::NoGradGuard no_grad;
  read_rates();
  bool round_ends = steps_ % recipe_.local_steps == 0;
  if (exchange_) {
    computing += computed - last_return_;
    round_ends = exchange_->after_step(update ? samples : 0, rates_, std::chrono::duration<double>(computing).count());
  }
  // Whole gradients are the same in an island, and so is what its optimizers do with them: there, and in a step that is
  // skipped, only the exchange changes a shard by itself.
  const bool only_exchanged = !update || (exchange_ && !trains_shard(recipe_));
  std::vector<Range> changed{{0, shard_.numel()}};
  if (only_exchanged) changed = exchange_ ? exchange_->changed() : std::vector<Range>{};
  parameters_->changed(changed, round);
  if (buffers_ && round_ends) {
    buffers_->apply();
    buffers_->launch(round);
    if (recipe_.delay == 0) buffers_->apply();
  } else if (buffers_) {
    buffers_->check();
  }
  last_return_ = Clock::now();
  return update;
}

void Synchronizer::Impl::finish() {
  flat_.check_in_place();
  const at::NoGradGuard no_grad;
  parameters_->settle();
  if (exchange_) exchange_->finish();
  if (!exchange_ && shares_whole_gradients()) {
    make_same(island_.inside() ? *island_.inside() : *communicator_, live(), recipe_.bucket_bytes);
  }
  parameters_->finish(exchange_ ? exchange_->changed() : std::vector<Range>{}, round_now());
  if (buffers_) {
    buffers_->apply();
    buffers_->launch(round_now());
    buffers_->apply();
  }
  last_return_ = Clock::now();
}

void Synchronizer::Impl::with_consensus(const std::function<void()>& body) {
  struct Inside {
    bool& flag;
    ~Inside() { flag = false; }
  };
  in_consensus_ = true;
  const Inside inside{in_consensus_};
  if (exchange_) {
    parameters_->with_values(exchange_->consensus(), round_now(), body);
  } else {
    body();
  }
  restart_clock();
}

MemoryUse Synchronizer::Impl::memory() const {
  MemoryUse use;
  use.parameters = parameters_->most_bytes();
  use.gradients = gradients_->most_bytes();
  use.inner_state = state_bytes(optimizer_);
  use.outer_state = exchange_ ? exchange_->state_bytes() : 0;
  use.communication = gradients_->most_scratch_bytes() + (exchange_ ? exchange_->message_bytes() : 0);
  return use;
}

std::int64_t Synchronizer::Impl::rounds() const {
  if (!exchange_) return (steps_ + recipe_.local_steps - 1) / recipe_.local_steps;
  return exchange_->round().number + (steps_ > exchange_->round().begin ? 1 : 0);
}

Pace Synchronizer::Impl::pace() const {
  Pace pace{.local_steps = recipe_.local_steps, .fragments = recipe_.fragments};
  const PaceControl* control = exchange_ ? exchange_->pace() : nullptr;
  if (control == nullptr) return pace;
  pace.step_seconds = control->times().step;
  pace.transfer_seconds = control->times().transfer;
  pace.cost_seconds = control->times().cost;
  pace.bounded = control->bounded();
  pace.bits_per_second_needed =
      8.0 * static_cast<double>(exchange_->bytes_per_exchange()) / control->longest_hidden_transfer();
  return pace;
}

Synchronizer::Synchronizer(const Cluster& cluster, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                           const Options& options)
    : impl_(std::make_unique<Impl>(cluster, model, optimizer, options)) {}
Synchronizer::~Synchronizer() = default;

bool Synchronizer::step(double samples) {
  return impl_->outside("step", [&] { return impl_->step(samples, Gradients::Use::kStep); });
}
void Synchronizer::skip_step() {
  impl_->outside("skip_step", [&] { impl_->step(1, Gradients::Use::kSkip); });
}
void Synchronizer::discard_gradients() {
  impl_->outside("discard_gradients", [&] { impl_->gradients_->finish(impl_->round_now(), Gradients::Use::kDiscard); });
}
void Synchronizer::before_inner_step(std::function<void()> hook) { impl_->before_inner_step_ = std::move(hook); }
double Synchronizer::clip_gradients(double max_norm) { return impl_->gradients_->clip(max_norm); }
void Synchronizer::finish() {
  impl_->outside("finish", [&] { impl_->finish(); });
}
void Synchronizer::with_consensus(const std::function<void()>& body) {
  impl_->outside("with_consensus", [&] { impl_->with_consensus(body); });
}
void Synchronizer::restart_clock() { impl_->restart_clock(); }
std::int64_t Synchronizer::steps() const { return impl_->steps_; }
std::int64_t Synchronizer::rounds() const { return impl_->rounds(); }
const Recipe& Synchronizer::recipe() const { return impl_->recipe_; }
Trace& Synchronizer::trace() { return impl_->trace_; }
const at::Tensor& Synchronizer::live() const { return impl_->live(); }
const at::Tensor& Synchronizer::consensus() const { return impl_->consensus(); }

Pace Synchronizer::pace() const { return impl_->pace(); }
Clipping Synchronizer::clipping() const { return impl_->exchange_ ? impl_->exchange_->clipping() : Clipping{}; }
MemoryUse Synchronizer::memory() const { return impl_->memory(); }

}  // namespace co2
