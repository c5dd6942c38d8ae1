#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <co2/core.h>
#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "comm/first_failure.h"
#include "flat/check_parameters.h"
#include "flat/flat_parameters.h"
#include "flat/shaped_like.h"
#include "flat/shard.h"
#include "island/island.h"
#include "island/layout.h"
#include "island/one_by_one.h"
#include "island/placed.h"
#include "island/roles.h"
#include "island/same_parameters.h"
#include "outer/wire_dtype.h"
#include "sync/named_stretches.h"
#include "sync/once_per_island.h"
#include "sync/progress_exchange.h"
#include "sync/same_everywhere.h"
#include "sync/side_averages.h"
#include "sync/start_the_same.h"
#include "sync/visiting.h"
#include "sync/walk.h"

namespace co2 {

class Core::Impl {
 public:
  Impl(const Cluster& cluster, TrainedModel model, const Options& options);

  bool begin_step(const std::vector<double>& rates, double samples, Gradients::Use use);
  void end_step(const std::vector<double>& rates);
  void cancel_step() { step_.reset(); }
  void check_no_step(const char* function) const;
  void check_between_steps(const char* function) const;
  void finish(bool whole);
  void with_consensus(const std::function<void()>& body);
  void each_parameter(const ParameterVisitor& visitor);
  void restart_clock() { last_return_ = Clock::now(); }
  void visit(Walk& walk, const std::function<void(StateVisitor&)>& inner);
  void adopt(StateVisitor& visitor, const std::function<void(StateVisitor&)>& inner, const std::function<void()>& fill);
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

  const Recipe recipe_;
  const Options asked_;
  const Options options_;
  Trace trace_;
  FirstFailure failure_;
  bool in_consensus_ = false;  // with_consensus()'s body is running
  std::int64_t steps_ = 0;
  const TrainedModel model_;
  std::shared_ptr<Communicator> communicator_;  // all workers
  std::shared_ptr<Communicator> control_;       // the same, for small numbers
  Island island_;
  FlatParameters flat_;
  Shard shard_;
  NamedStretches names_;
  // A step: backward's gradients reach the inner optimizer, it changes live parameters, the exchange between islands
  // changes them again, and forward gets to see that.
  std::unique_ptr<ForwardParameters> parameters_;
  std::unique_ptr<Gradients> gradients_;
  std::unique_ptr<ProgressExchange> exchange_;  // null for `none` and `ddp`
  std::unique_ptr<SideAverages> side_;

 private:
  /// What is under way between begin_step() and end_step().
  struct Step {
    bool update = false;
    double samples = 0;
    Clock::duration computing{0};
  };

  std::vector<Witness> witnesses();
  void check_device() const;
  void check_samples(double samples) const;
  void check_rates(const std::vector<double>& rates) const;
  void check_fits(StateVisitor& visitor) const;

  const std::size_t groups_;
  std::vector<double> rates_;  // the inner rate in force, per parameter group
  std::int64_t votes_ = 0;     // that workers who share gradients have held
  std::optional<Step> step_;
  Clock::time_point last_return_ = Clock::now();
};

namespace {

// Momentum is kept in units of the inner rate, in float32: beyond these its numbers would leave the range. A smaller
// rate counts as 0 there; it moves nothing.
constexpr double kSmallestRate = 1e-24, kLargestRate = 1e24;

/// What can be refused is refused here, before anything is changed.
Recipe checked(const Options& options, const Cluster& cluster, const TrainedModel& model) {
  Recipe recipe = placed(resolve(options), cluster.size());
  check_parameters(model);
  const at::ScalarType dtype = model.parameters.front().tensor.scalar_type();
  if (recipe.compute == Compute::kBfloat16 && dtype != at::kFloat) {
    throw OptionError(
        fmt::format("compute = bfloat16 needs parameters of Float, but these are {}", c10::toString(dtype)));
  }
  // What is automatic is never refused.
  const bool alone = cluster.size() == recipe.island_size;
  if (options.wire == Wire::kAuto && (alone || (dtype != at::kFloat && dtype != at::kDouble))) {
    recipe.wire = Wire::kPlain;
    recipe.adaptive_wire = false;
  }
  if (recipe.exchange == Recipe::Exchange::kProgress) check_wire(recipe.wire, dtype);
  if (recipe.agree_moments > 0 && !model.second_moments) {
    throw OptionError(
        fmt::format("agree_moments = {} needs an optimizer that has second moments: Adam, AdamW or RMSprop in a "
                    "Synchronizer, or TrainedModel::second_moments of a Core's own",
                    recipe.agree_moments));
  }
  if (recipe.rate_factor != 0 && recipe.rate_factor != 1 && !model.scales_rates) {
    throw OptionError(
        fmt::format("rate_factor = {} is for a Synchronizer, which makes the inner step itself: multiply the rates "
                    "that you give to a Core",
                    recipe.rate_factor));
  }
  return recipe;
}

std::size_t groups_of(const TrainedModel& model) {
  std::size_t groups = 0;
  for (const Parameter& parameter : model.parameters) groups = std::max(groups, parameter.group + 1);
  return groups;
}

Options in_force(Options options, const Recipe& recipe) {
  options = filled_in(options);
  options.island_size = recipe.island_size;
  options.zero = recipe.zero;
  if (!recipe.adaptive_wire) options.wire = recipe.wire;
  return options;
}

}  // namespace

Core::Impl::Impl(const Cluster& cluster, TrainedModel model, const Options& options)
    : recipe_(checked(options, cluster, model)),
      asked_(options),
      options_(in_force(options, recipe_)),
      model_(std::move(model)),
      communicator_(cluster.communicator("data", Carries::kTensors)),
      control_(cluster.communicator("all control")),
      island_(cluster, recipe_.island_size, communicator_),
      flat_(model_.parameters, layout_for(recipe_, model_)),
      shard_(flat_, flat_.parts() == 1 ? 0 : island_.rank()),
      names_(flat_, shard_, model_),
      groups_(groups_of(model_)),
      rates_(groups_, 1.0) {
  check_device();
  check_same_everywhere(*control_, flat_, model_, recipe_);
  const at::Tensor apart =
      start_the_same(*communicator_, *control_, island_, flat_, shard_.numel(), model_, recipe_.bucket_bytes);
  const RoleContext roles{recipe_, model_, island_, communicator_, flat_, shard_, failure_, trace_};
  parameters_ = make_parameters(roles, apart);
  gradients_ = make_gradients(roles, *parameters_, [this] { return witnesses(); });
  side_ = std::make_unique<SideAverages>(recipe_, model_, island_, communicator_, gradients_->trained(), trace_);
  if (recipe_.exchange == Recipe::Exchange::kProgress) {
    auto wire = make_wire(recipe_, island_, live(), shard_.numel());
    exchange_ = std::make_unique<ProgressExchange>(control_, cluster.local_size(), island_, flat_, shard_, names_,
                                                   live(), groups_, recipe_, std::move(wire), trace_);
  }
}

void Core::Impl::check_device() const {
  const at::Device device = flat_.options().device();
  for (const auto& group : {communicator_, island_.inside(), island_.across()}) {
    if (!group || group->carries(device.type())) continue;
    throw OptionError(
        fmt::format("the parameters are on {}, and this cluster's groups ({}) do not carry what is there: bring a "
                    "process group for "
                    "that device (cluster_over() of co2/c10d.h), or move the model to the CPU",
                    device.str(), group->backend()));
  }
}

/// What must be the same on all workers that share gradients, so that they go on with the same parameters, or with
/// parts of one model that were all trained alike.
std::vector<Witness> Core::Impl::witnesses() {
  std::vector<Witness> result;
  for (std::size_t g = 0; g < groups_; ++g) {
    result.push_back({.value = rates_[g], .tolerance = 1e-9, .differs = [g](double a, double b) {
                        throw OptionError(fmt::format(
                            "the learning rate of parameter group {} is from {} to {} on workers that share gradients: "
                            "give all of them the same schedule",
                            g, a, b));
                      }});
  }
  if (shares_whole_gradients(recipe_, island_)) {
    parameters_->settle();
    result.push_back(same_parameters(live(), votes_++));
  }
  return result;
}

std::int64_t Core::Impl::round_now() const {
  if (exchange_) return exchange_->round().number;
  return steps_ / recipe_.local_steps;
}

void Core::Impl::check_samples(double samples) const {
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

void Core::Impl::check_rates(const std::vector<double>& rates) const {
  if (rates.empty() && !recipe_.rate_units) return;
  if (rates.size() != groups_) {
    throw OptionError(
        fmt::format("strategy {} needs the learning rate of every parameter group: there are {} groups, and "
                    "{} rates were given",
                    name(recipe_.strategy), groups_, rates.size()));
  }
  for (std::size_t g = 0; g < rates.size(); ++g) {
    if (rates[g] >= 0 && rates[g] <= kLargestRate) continue;
    throw OptionError(
        fmt::format("the learning rate of parameter group {} is {}: it must be 0 or a positive number, at most {}", g,
                    rates[g], kLargestRate));
  }
}

void Core::Impl::check_no_step(const char* function) const {
  if (!step_) return;
  throw OptionError(fmt::format("{}() in the middle of a step: call end_step() first, or cancel_step()", function));
}

/// Gradients are no part of a state.
void Core::Impl::check_between_steps(const char* function) const {
  check_no_step(function);
  if (!gradients_->under_way()) return;
  throw OptionError(
      fmt::format("{}() after a backward pass and before step(), whose gradients would be lost: call it after step() "
                  "(or skip_step(), discard_gradients())",
                  function));
}

bool Core::Impl::begin_step(const std::vector<double>& rates, double samples, Gradients::Use use) {
  check_no_step("begin_step");
  check_samples(samples);
  check_rates(rates);
  flat_.check_in_place();
  if (!rates.empty()) rates_ = rates;
  const std::int64_t round = round_now();
  Step step{.samples = samples};
  if (gradients_->averaged()) {
    const Clock::time_point backward_over = Clock::now();
    step.computing = backward_over - last_return_;
    trace_.record({SpanKind::kCompute, last_return_, backward_over, round, -1, 0});
  }
  step.update = gradients_->finish(round, use);
  if (gradients_->averaged()) last_return_ = Clock::now();
  parameters_->settle();
  step_ = step;
  return step.update;
}

void Core::Impl::end_step(const std::vector<double>& rates) {
  if (!step_) throw OptionError("end_step() ends a step that was never begun: call begin_step() first");
  check_rates(rates);
  const Step step = *std::exchange(step_, std::nullopt);
  const std::int64_t round = round_now();
  ++steps_;
  const Clock::time_point computed = Clock::now();
  trace_.record({SpanKind::kCompute, last_return_, computed, round, -1, 0});

  const at::NoGradGuard no_grad;
  if (!rates.empty()) rates_ = rates;
  bool round_ends = steps_ % recipe_.local_steps == 0;
  std::vector<Range> changed;
  if (exchange_) {
    const double computing = seconds_between(last_return_, computed + step.computing);
    std::vector<double> units = rates_;
    for (double& rate : units) rate = rate < kSmallestRate ? 0 : rate;
    round_ends = exchange_->after_step(step.update ? step.samples : 0, units, computing);
    changed = exchange_->changed();
  }
  // Whole gradients are the same in an island, and so is what its optimizers do with them: there only the exchange
  // changes a shard by itself.
  if (step.update && gradients_->by_shard()) changed = {{0, shard_.numel()}};
  parameters_->changed(changed, round);
  side_->after_step({.steps = steps_, .updated = step.update, .round_ends = round_ends, .round = round});
  last_return_ = Clock::now();
}

void Core::Impl::finish(bool whole) {
  check_no_step("finish");
  flat_.check_in_place();
  const at::NoGradGuard no_grad;
  parameters_->settle();
  if (exchange_) exchange_->finish();
  if (!exchange_ && island_.inside() && shares_whole_gradients(recipe_, island_)) {
    make_same(*island_.inside(), *island_.inside_control(), live(), recipe_.bucket_bytes);
  }
  parameters_->finish(exchange_ ? exchange_->changed() : std::vector<Range>{}, round_now(), whole);
  side_->finish(round_now());
  last_return_ = Clock::now();
}

void Core::Impl::each_parameter(const ParameterVisitor& visitor) {
  check_no_step("each_parameter");
  flat_.check_in_place();
  const at::NoGradGuard no_grad;
  parameters_->settle();
  for (const std::size_t i : flat_.in_given_order()) {
    visitor(model_.parameters[flat_.given(i)].name,
            shaped_like(gather_parameter(island_, flat_, live(), i), flat_.parameters()[i]));
  }
  restart_clock();
}

void Core::Impl::with_consensus(const std::function<void()>& body) {
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

/// Names and sizes alone do not tell whether a state is of this run: of another strategy or wire it may have the same.
void Core::Impl::check_fits(StateVisitor& visitor) const {
  const auto same = [&](const char* name, std::int64_t mine, const char* what) {
    std::int64_t value = mine;
    visitor.number(name, value);
    if (value == mine) return;
    throw DataError(fmt::format("the state that is being read is of {} ({} = {}, here {}): read it where it fits", what,
                                name, value, mine));
  };
  same("format", 5, "another version of co2");
  same("workers", communicator_->size(), "another number of workers");
  same("rank", communicator_->rank(), "another worker");
  same("fingerprint", fingerprint_of(flat_, model_, recipe_),
       "another model, kind of optimizer, or other options (strategy, local_steps, wire, island_size, zero, ...)");
}

void Core::Impl::visit(Walk& walk, const std::function<void(StateVisitor&)>& inner) {
  check_between_steps("visit");
  const at::NoGradGuard no_grad;
  flat_.check_in_place();
  parameters_->settle();
  StateVisitor& visitor = walk.visitor();
  check_fits(visitor);
  visit_counter(visitor, "steps", steps_);
  visit_counter(visitor, "votes", votes_);
  // Whoever has whole parameters in an island has the same as the others there.
  OncePerIsland once(visitor, island_);
  const bool whole = island_.inside() && live().numel() == flat_.numel();
  names_.visit(whole ? static_cast<StateVisitor&>(once) : visitor, "live", live());
  if (inner) inner(whole && recipe_.zero == 0 ? static_cast<StateVisitor&>(once) : visitor);
  for (const auto& [name, buffer] : model_.buffers) {
    if (buffer.defined()) visitor.tensor("buffers/" + name, buffer);
  }
  side_->visit(walk);
  if (exchange_) exchange_->visit(walk, "exchange");
  if (walk.reads()) parameters_->changed({{0, shard_.numel()}}, round_now());
  restart_clock();
}

void Core::Impl::adopt(StateVisitor& visitor, const std::function<void(StateVisitor&)>& inner,
                       const std::function<void()>& fill) {
  check_between_steps("adopt");
  if (steps_ > 0) throw OptionError("adopt() is for a run that has taken no step: make a new one");
  const at::NoGradGuard no_grad;
  flat_.check_in_place();
  parameters_->settle();
  visit_counter(visitor, "steps", steps_);
  names_.visit(visitor, "live", live());
  if (inner) inner(visitor);
  for (const auto& [name, buffer] : model_.buffers) {
    if (buffer.defined()) visitor.tensor("buffers/" + name, buffer);
  }
  if (exchange_) exchange_->adopt(visitor, "exchange");
  fill();
  parameters_->changed({{0, shard_.numel()}}, round_now());
  restart_clock();
}

MemoryUse Core::Impl::memory() const {
  MemoryUse use;
  use.parameters = parameters_->most_bytes();
  use.gradients = gradients_->most_bytes();
  use.outer_state = exchange_ ? exchange_->state_bytes() : 0;
  use.communication = gradients_->most_scratch_bytes() + (exchange_ ? exchange_->message_bytes() : 0) + side_->bytes();
  return use;
}

std::int64_t Core::Impl::rounds() const {
  if (!exchange_) return (steps_ + recipe_.local_steps - 1) / recipe_.local_steps;
  return exchange_->round().number + (steps_ > exchange_->round().begin ? 1 : 0);
}

Pace Core::Impl::pace() const {
  Pace pace{.local_steps = recipe_.local_steps, .fragments = recipe_.fragments, .wire = recipe_.wire};
  if (!exchange_) return pace;
  pace.local_steps = exchange_->round().local_steps;
  pace.fragments = exchange_->round().fragments;
  pace.wire = exchange_->round().wire;
  const PaceControl* control = exchange_->pace();
  if (control == nullptr) return pace;
  pace.step_seconds = control->times().step;
  pace.transfer_seconds = control->transfer();
  pace.cost_seconds = control->times().cost;
  pace.bounded = control->bounded();
  pace.bits_per_second_needed =
      8.0 * static_cast<double>(exchange_->bytes_per_exchange()) / control->longest_hidden_transfer();
  return pace;
}

Core::Core(const Cluster& cluster, TrainedModel model, const Options& options)
    : impl_(std::make_unique<Impl>(cluster, std::move(model), options)) {}
Core::~Core() = default;
Core::Core(Core&&) noexcept = default;
Core& Core::operator=(Core&&) noexcept = default;

const std::vector<TrainedTensor>& Core::trained() const { return impl_->gradients_->trained(); }
bool Core::begin_step(const std::vector<double>& rates, double samples, Use use) {
  const auto gradients = use == Use::kStep ? Gradients::Use::kStep : Gradients::Use::kSkip;
  return impl_->outside("step", [&] { return impl_->begin_step(rates, samples, gradients); });
}
void Core::end_step(const std::vector<double>& rates) {
  impl_->outside("step", [&] { impl_->end_step(rates); });
}
void Core::cancel_step() { impl_->cancel_step(); }
void Core::discard_gradients() {
  impl_->outside("discard_gradients", [&] {
    impl_->check_no_step("discard_gradients");
    impl_->gradients_->finish(impl_->round_now(), Gradients::Use::kDiscard);
  });
}
double Core::clip_gradients(double max_norm) { return impl_->gradients_->clip(max_norm); }
void Core::finish() {
  impl_->outside("finish", [&] { impl_->finish(/*whole=*/true); });
}
void Core::finish_sharded() {
  impl_->outside("finish_sharded", [&] { impl_->finish(/*whole=*/false); });
}
void Core::each_parameter(const ParameterVisitor& visitor) {
  impl_->outside("each_parameter", [&] { impl_->each_parameter(visitor); });
}
void Core::with_consensus(const std::function<void()>& body) {
  impl_->outside("with_consensus", [&] { impl_->with_consensus(body); });
}
void Core::restart_clock() { impl_->restart_clock(); }
void Core::settle() {
  impl_->outside("settle", [&] {
    if (impl_->exchange_) impl_->exchange_->settle();
    impl_->side_->settle();
  });
}
void Core::visit(StateVisitor& visitor, const std::function<void(StateVisitor&)>& inner) {
  impl_->outside("visit", [&] {
    try {
      Walk walk(visitor);
      impl_->visit(walk, inner);
    } catch (...) {
      if (visitor.reads()) impl_->failure_.remember();  // it is neither the one run nor the other now
      throw;
    }
  });
}
void Core::adopt(StateVisitor& visitor, const std::function<void(StateVisitor&)>& inner,
                 const std::function<void()>& fill) {
  impl_->outside("adopt", [&] {
    try {
      impl_->adopt(visitor, inner, fill);
    } catch (...) {
      impl_->failure_.remember();
      throw;
    }
  });
}
void Core::snapshot(std::shared_ptr<StateVisitor> visitor, std::function<void(bool)> over,
                    const std::function<void(StateVisitor&)>& inner) {
  if (visitor->reads()) throw OptionError("snapshot() is for a visitor that writes: use visit() to read");
  impl_->outside("snapshot", [&] {
    const auto walk = Walk::without_waiting(std::move(visitor), std::move(over));
    walk->guard([&] { impl_->visit(*walk, inner); });
  });
}
std::int64_t Core::steps() const { return impl_->steps_; }
std::int64_t Core::rounds() const { return impl_->rounds(); }
const Options& Core::options() const { return impl_->options_; }
const Options& Core::asked() const { return impl_->asked_; }
Trace& Core::trace() { return impl_->trace_; }
const at::Tensor& Core::live() const { return impl_->live(); }
const at::Tensor& Core::consensus() const { return impl_->consensus(); }
Pace Core::pace() const { return impl_->pace(); }
std::int64_t Core::left_out() const { return impl_->exchange_ ? impl_->exchange_->left_out() : 0; }
Clipping Core::clipping() const { return impl_->exchange_ ? impl_->exchange_->clipping() : Clipping{}; }
MemoryUse Core::memory() const { return impl_->memory(); }

}  // namespace co2
