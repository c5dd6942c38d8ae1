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
  const at::Tensor& live() const { return parameters_->live(); }
  const at::Tensor& consensus() const { return exchange_ ? exchange_->consensus() : live(); }
  std::int64_t rounds() const;
  Pace pace() const;
  MemoryUse memory() const;
  std::int64_t round_now() const;  // of the step that is being taken, or was taken last

  Recipe recipe_;
  Trace trace_;
  FirstFailure failure_;
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
  void make_parameters();
  void make_gradients(const torch::nn::Module& model);
  void check_samples(double samples) const;
  void check_optimizer() const;
  void read_rates();

  torch::optim::Optimizer& optimizer_;
  std::unique_ptr<BufferAverage> buffers_;
  std::vector<std::size_t> group_sizes_;  // parameters that the optimizer has, per group
  std::vector<double> rates_;             // the inner rate in force, per parameter group
  Clock::time_point last_return_ = Clock::now();
};

namespace {

/// The optimizer trains the shard in place of the model's parameters.
bool trains_shard(const Recipe& recipe) { return recipe.zero > 0 || recipe.compute == Compute::kBfloat16; }

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
  check_same_everywhere(*communicator_, flat_, model, recipe_);
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

void Synchronizer::Impl::make_gradients(const torch::nn::Module& model) {
  const bool shared = recipe_.exchange == Recipe::Exchange::kGradients || island_.size() > 1;
  if (trains_shard(recipe_)) {
    auto gradients = std::make_unique<ShardedGradients>(
        island_, flat_, shard_, live(), optimizer_, recipe_.accumulation_steps, recipe_.zero >= 2, failure_, trace_);
    if (auto* units = dynamic_cast<ParameterUnits*>(parameters_.get())) {
      gradients->tell([units](std::size_t unit) { units->got_gradient(unit); },
                      [units, passes = recipe_.accumulation_steps] { units->passes_over(passes); });
      units->on_passed([gradients = gradients.get()](std::size_t u, int passes) { gradients->close(u, passes); });
    }
    gradients_ = std::move(gradients);
  } else if (shared) {
    const auto group = island_.inside() ? island_.inside() : communicator_;
    gradients_ = std::make_unique<GradientReducer>(group, in_model_order(flat_.parameters(), model),
                                                   recipe_.bucket_bytes, recipe_.accumulation_steps, failure_, trace_);
  } else {
    gradients_ = std::make_unique<OwnGradients>(flat_.parameters());
  }
}

Synchronizer::Impl::~Impl() {
  if (buffers_) buffers_->abandon();
}

void Synchronizer::Impl::read_rates() {
  if (!recipe_.rate_units) return;  // not every optimizer has one rate per group to tell
  const auto& groups = optimizer_.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    double rate = 0;
    try {
      rate = groups[g].options().get_lr();
    } catch (const c10::Error&) {
      throw OptionError(
          fmt::format("strategy {} needs the optimizer's learning rate, which this one does not tell (its options have "
                      "no get_lr())",
                      name(recipe_.strategy)));
    }
    if (!(rate >= 0 && std::isfinite(rate))) {
      throw OptionError(
          fmt::format("the learning rate of parameter group {} is {}: it must be 0 or a positive number", g, rate));
    }
    rates_[g] = rate;
  }
}

std::int64_t Synchronizer::Impl::round_now() const {
  if (exchange_) return exchange_->round().number;
  return steps_ / recipe_.local_steps;
}

void Synchronizer::Impl::check_samples(double samples) const {
  if (!(samples >= 0 && std::isfinite(samples))) {
    throw OptionError(fmt::format("samples = {} is not allowed: it must be 0 or a positive number", samples));
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
  parameters_->finish(exchange_ ? exchange_->changed() : std::vector<Range>{}, round_now());
  if (buffers_) {
    buffers_->apply();
    buffers_->launch(round_now());
    buffers_->apply();
  }
  last_return_ = Clock::now();
}

void Synchronizer::Impl::with_consensus(const std::function<void()>& body) {
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
  return impl_->failure_.watch([&] { return impl_->step(samples, Gradients::Use::kStep); });
}
void Synchronizer::skip_step() {
  impl_->failure_.watch([&] { impl_->step(1, Gradients::Use::kSkip); });
}
void Synchronizer::discard_gradients() {
  impl_->failure_.watch([&] { impl_->gradients_->finish(impl_->round_now(), Gradients::Use::kDiscard); });
}
void Synchronizer::before_inner_step(std::function<void()> hook) { impl_->before_inner_step_ = std::move(hook); }
double Synchronizer::clip_gradients(double max_norm) { return impl_->gradients_->clip(max_norm); }
void Synchronizer::finish() {
  impl_->failure_.watch([&] { impl_->finish(); });
}
void Synchronizer::with_consensus(const std::function<void()>& body) {
  impl_->failure_.watch([&] { impl_->with_consensus(body); });
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
