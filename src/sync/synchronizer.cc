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
#include <unordered_map>
#include <utility>
#include <vector>

#include "flat/flat_parameters.h"
#include "flat/shard.h"
#include "shard/island.h"
#include "shard/parameter_units.h"
#include "shard/placed.h"
#include "shard/sharded_gradients.h"
#include "shard/sharded_optimizer.h"
#include "shard/shown_units.h"
#include "sync/buffer_average.h"
#include "sync/gradient_reducer.h"
#include "sync/progress_exchange.h"
#include "sync/same_everywhere.h"

namespace co2 {

class Synchronizer::Impl {
 public:
  Impl(const Cluster& cluster, torch::nn::Module& model, torch::optim::Optimizer& optimizer, const Options& options);
  ~Impl();

  void step(double samples);
  void finish();
  void with_consensus(const std::function<void()>& body);
  double clip_gradients(double max_norm);
  /// The whole model's live parameters, or those of the shard if they are kept apart.
  const at::Tensor& live() const { return master_.defined() ? master_ : flat_.data(); }
  const at::Tensor& consensus() const { return exchange_ ? exchange_->consensus() : live(); }
  std::int64_t rounds() const;
  Pace pace() const;
  MemoryUse memory() const;

  Recipe recipe_;
  Trace trace_;
  std::function<void()> before_inner_step_;
  std::int64_t steps_ = 0;
  std::shared_ptr<Communicator> communicator_;  // all workers
  Island island_;
  FlatParameters flat_;
  Shard shard_;
  at::Tensor master_;  // the shard's parameters, where what forward uses is something else
  // In an island, one of them: parameters that come and go (ZeRO 3), or that are shown to the others when they change.
  std::unique_ptr<ParameterUnits> units_;
  std::unique_ptr<ShownUnits> shown_;
  std::unique_ptr<ProgressExchange> exchange_;

 private:
  void share_gradients_in_island(const torch::nn::Module& model);
  void show_island(const std::vector<Range>& changed, std::int64_t round);
  void give_everybody_the_same_start(torch::nn::Module& model);
  void read_rates();
  bool mixed() const { return recipe_.compute == Compute::kBfloat16; }
  bool divided() const { return flat_.parts() > 1; }  // the island's workers answer for a shard each
  void keep_shard_apart(torch::nn::Module& model);
  void count_gradients();
  std::int64_t round_now() const;  // of the step that is being taken, or was taken last

  torch::optim::Optimizer& optimizer_;
  // Inside the island: one of them, or none.
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<ShardedGradients> sharded_;
  std::unique_ptr<BufferAverage> buffers_;
  std::vector<double> rates_;        // the inner rate in force, per parameter group
  std::int64_t gradient_bytes_ = 0;  // the most that was there at a step, where nobody moves them
  Clock::time_point last_return_ = Clock::now();
};

namespace {
torch::optim::Optimizer& supported(torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr) {
    throw OptionError("LBFGS evaluates the loss inside its step, which step() can't do: use another optimizer");
  }
  return optimizer;
}

/// About the order in which forward uses them. The optimizer's own order need not be: with its parameters in groups by
/// weight decay, say, the last group is only complete when backward has come to the first layer.
std::vector<at::Tensor> in_model_order(std::vector<at::Tensor> trained, const torch::nn::Module& model) {
  std::unordered_map<const void*, std::size_t> place;
  for (const at::Tensor& parameter : model.parameters()) place.emplace(parameter.unsafeGetTensorImpl(), place.size());
  const auto place_of = [&](const at::Tensor& parameter) {
    const auto found = place.find(parameter.unsafeGetTensorImpl());
    return found == place.end() ? place.size() : found->second;
  };
  std::stable_sort(trained.begin(), trained.end(),
                   [&](const at::Tensor& a, const at::Tensor& b) { return place_of(a) < place_of(b); });
  return trained;
}

/// The model's units, in the order in which it has registered them.
std::vector<UnitModule*> units_of(torch::nn::Module& model) {
  std::vector<UnitModule*> units;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    auto* unit = dynamic_cast<UnitModule*>(module.get());
    if (unit == nullptr) continue;
    const auto parameters = unit->parameters();
    const bool trains = std::any_of(parameters.begin(), parameters.end(),
                                    [](const at::Tensor& p) { return p.requires_grad() && p.numel() > 0; });
    if (trains) units.push_back(unit);
  }
  return units;
}

FlatLayout layout_for(const Recipe& recipe, torch::nn::Module& model) {
  const bool divided = recipe.zero > 0 || recipe.exchange == Recipe::Exchange::kProgress;
  if (recipe.island_size == 1 || !divided) return {};
  FlatLayout layout{.parts = recipe.island_size, .order = model.parameters()};
  std::int64_t bytes = 0;
  for (const at::Tensor& parameter : layout.order) bytes += static_cast<std::int64_t>(parameter.nbytes());
  const std::int64_t element = layout.order.empty() ? 4 : layout.order.front().element_size();
  layout.unit_elements = std::max<std::int64_t>(1, island_unit_bytes(bytes, recipe.bucket_bytes) / element);
  for (UnitModule* unit : units_of(model)) layout.units.push_back(unit->parameters());
  if (layout.units.empty() && recipe.zero == 3) {
    throw OptionError(
        "zero = 3 needs a model with units, whose parameters come and go: derive its blocks from co2::UnitModule, or "
        "use zero = 2");
  }
  return layout;
}
}  // namespace

Synchronizer::Impl::Impl(const Cluster& cluster, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                         const Options& options)
    : recipe_(placed(resolve(options), cluster.size())),
      communicator_(cluster.communicator("data")),
      island_(cluster, recipe_.island_size, communicator_),
      flat_(supported(optimizer), layout_for(recipe_, model)),
      shard_(flat_, flat_.parts() == 1 ? 0 : island_.rank()),
      optimizer_(optimizer),
      rates_(optimizer.param_groups().size(), 1.0) {
  check_same_everywhere(*communicator_, flat_, recipe_);
  give_everybody_the_same_start(model);
  keep_shard_apart(model);
  if (divided() && !units_) shown_ = std::make_unique<ShownUnits>(island_, flat_, units_of(model), trace_);
  const bool shares = recipe_.exchange == Recipe::Exchange::kGradients || island_.size() > 1 || mixed();
  if (shares) share_gradients_in_island(model);
  if (recipe_.exchange == Recipe::Exchange::kNothing && island_.size() == 1) return;
  buffers_ = std::make_unique<BufferAverage>(communicator_, model.buffers(), trace_);
  if (recipe_.exchange == Recipe::Exchange::kProgress) {
    exchange_ = std::make_unique<ProgressExchange>(cluster, island_, shard_, live(), recipe_, trace_);
  }
}

void Synchronizer::Impl::keep_shard_apart(torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  if (recipe_.zero < 3 && !mixed()) return;
  master_ = shard_.copy_of(flat_.data());
  const at::ScalarType compute = mixed() ? at::kBFloat16 : master_.scalar_type();
  if (mixed() && master_.scalar_type() != at::kFloat) {
    throw OptionError(fmt::format("compute = bfloat16 needs parameters of Float, but these are {}",
                                  c10::toString(master_.scalar_type())));
  }
  if (recipe_.zero == 3) {
    units_ = std::make_unique<ParameterUnits>(island_, flat_, master_, compute, units_of(model), trace_);
  } else {
    flat_.become(compute);
  }
}

void Synchronizer::Impl::share_gradients_in_island(const torch::nn::Module& model) {
  if (recipe_.zero == 0 && !mixed()) {
    const auto group = island_.inside() ? island_.inside() : communicator_;
    reducer_ = std::make_unique<GradientReducer>(group, in_model_order(flat_.parameters(), model), recipe_.bucket_bytes,
                                                 recipe_.accumulation_steps, trace_);
    return;
  }
  sharded_ = std::make_unique<ShardedGradients>(island_, flat_, live().options(), recipe_.accumulation_steps,
                                                recipe_.zero >= 2, trace_);
  give_shard(optimizer_, shard_, live(), sharded_->values());
  if (units_) sharded_->on_unit_full([this](std::size_t unit) { units_->backward_done(unit); });
}

Synchronizer::Impl::~Impl() {
  if (buffers_) buffers_->abandon();
}

void Synchronizer::Impl::give_everybody_the_same_start(torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  communicator_->broadcast(flat_.data(), 0)->wait();
  const auto& trained = flat_.parameters();
  std::vector<at::Tensor> rest = model.buffers();
  for (const at::Tensor& parameter : model.parameters()) {
    const bool is_trained =
        std::any_of(trained.begin(), trained.end(), [&](const at::Tensor& t) { return t.is_same(parameter); });
    if (!is_trained) rest.push_back(parameter);
  }
  for (const at::Tensor& tensor : rest) {
    if (!tensor.defined() || tensor.numel() == 0) continue;
    const at::Tensor copy = tensor.detach().contiguous();
    communicator_->broadcast(copy, 0)->wait();
    tensor.detach().copy_(copy);
  }
}

// Progress is divided by the rate of its round and multiplied by today's. A rate of zero has no units to speak of: the
// last positive one stands in for it.
void Synchronizer::Impl::read_rates() {
  if (!recipe_.rate_units) return;  // not every optimizer has one rate per group to tell
  const auto& groups = optimizer_.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const double rate = groups[g].options().get_lr();
    if (rate > 0) rates_[g] = rate;
  }
}

std::int64_t Synchronizer::Impl::round_now() const {
  if (exchange_) return exchange_->round().number;
  return steps_ / recipe_.local_steps;
}

void Synchronizer::Impl::step(double samples) {
  if (!(samples >= 0 && std::isfinite(samples))) {
    throw OptionError(fmt::format("samples = {} is not allowed: it must be 0 or a positive number", samples));
  }
  const std::int64_t round = round_now();
  if (reducer_ || sharded_) {
    if (samples != 1) {
      throw OptionError(
          "ddp and islands average gradients equally, before step() could weigh them: call step() without samples, "
          "and weigh the loss instead");
    }
    trace_.record({SpanKind::kCompute, last_return_, Clock::now(), round, -1, 0});
    if (reducer_) reducer_->finish(round);
    if (sharded_) {
      sharded_->finish(round);
      restore_gradients(optimizer_, shard_, sharded_->values());
    }
    last_return_ = Clock::now();
  }
  count_gradients();
  if (before_inner_step_) before_inner_step_();
  if (shown_) shown_->wait();  // a unit that forward did not use
  optimizer_.step();
  ++steps_;
  const Clock::time_point computed = Clock::now();
  trace_.record({SpanKind::kCompute, last_return_, computed, round, -1, 0});

  const at::NoGradGuard no_grad;
  flat_.check_frozen();
  read_rates();
  if (mixed() && !units_ && flat_.data().scalar_type() != at::kBFloat16)
    flat_.become(at::kBFloat16);  // after a finish()
  bool round_ends = steps_ % recipe_.local_steps == 0;
  if (exchange_) {
    const double seconds = std::chrono::duration<double>(computed - last_return_).count();
    round_ends = exchange_->after_step(samples, rates_, seconds);
  }
  show_island(exchange_ && !sharded_ ? exchange_->changed() : std::vector<Range>{{0, shard_.numel()}}, round);
  if (buffers_ && round_ends) {
    buffers_->apply();
    buffers_->launch(round);
    if (recipe_.delay == 0) buffers_->apply();
  }
  last_return_ = Clock::now();
}

void Synchronizer::Impl::finish() {
  const at::NoGradGuard no_grad;
  if (exchange_) {
    exchange_->finish(rates_);
    if (!units_ && !mixed()) show_island(exchange_->changed(), round_now());
  }
  if (units_) {
    units_->refresh(round_now());
    units_->gather_all();
  } else if (mixed()) {
    flat_.become(master_.scalar_type());
    show_island({{0, shard_.numel()}}, round_now());
  }
  if (shown_) shown_->wait();
  if (!buffers_) return;
  buffers_->apply();
  buffers_->launch(round_now());
  buffers_->apply();
}

void Synchronizer::Impl::with_consensus(const std::function<void()>& body) {
  struct Restore {
    FlatParameters& flat;
    ~Restore() { flat.point_to(flat.data()); }
  };
  if (!exchange_) return body();
  if (units_) {
    struct Back {
      Impl& impl;
      ~Back() { impl.units_->refresh(impl.round_now()); }
    };
    units_->refresh_from(consensus(), round_now());
    const Back back{*this};
    return body();
  }
  at::Tensor whole = consensus();
  if (island_.size() > 1 || mixed()) {
    const at::NoGradGuard no_grad;
    whole = at::empty_like(flat_.data());
    shard_.write_to(whole, consensus(), {0, shard_.numel()});
    if (shown_) shown_->wait();
    for (std::size_t unit = 0; divided() && unit < flat_.units().size(); ++unit) {
      island_.gather(flat_, whole, unit)->wait();
    }
  }
  flat_.point_to(whole);
  const Restore restore{flat_};
  body();
}

/// Tells the island what has changed in this worker's shard.
void Synchronizer::Impl::show_island(const std::vector<Range>& changed, std::int64_t round) {
  if (units_) return units_->refresh(round);
  if (master_.defined()) shard_.write_to(flat_.data(), master_, {0, shard_.numel()});
  if (shown_) shown_->show(changed, round);
}

double Synchronizer::Impl::clip_gradients(double max_norm) {
  const at::NoGradGuard no_grad;
  double squared = 0;
  std::vector<at::Tensor> gradients;
  if (sharded_) {
    gradients.push_back(sharded_->values());
  } else {
    for (const at::Tensor& parameter : flat_.parameters()) {
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    }
  }
  for (const at::Tensor& gradient : gradients) {
    const double norm = at::linalg_vector_norm(gradient, 2).item<double>();
    squared += norm * norm;
  }
  const double norm = std::sqrt(sharded_ ? island_.sum(squared) : squared);
  if (norm > max_norm) {
    for (at::Tensor& gradient : gradients) gradient.mul_(max_norm / (norm + 1e-6));
  }
  return norm;
}

void Synchronizer::Impl::count_gradients() {
  if (reducer_ || sharded_) return;
  std::int64_t bytes = 0;
  for (const at::Tensor& parameter : flat_.parameters()) {
    if (parameter.grad().defined()) bytes += static_cast<std::int64_t>(parameter.grad().nbytes());
  }
  gradient_bytes_ = std::max(gradient_bytes_, bytes);
}

MemoryUse Synchronizer::Impl::memory() const {
  MemoryUse use;
  if (units_) {
    use.parameters = units_->most_bytes();
  } else if (mixed()) {
    // As in training: finish() leaves them in their own dtype.
    use.parameters = 2 * flat_.numel() + static_cast<std::int64_t>(master_.nbytes());
  } else {
    use.parameters = static_cast<std::int64_t>(flat_.data().nbytes());
  }
  use.gradients = reducer_ ? reducer_->most_bytes() : sharded_ ? sharded_->most_bytes() : gradient_bytes_;
  use.inner_state = state_bytes(optimizer_);
  if (exchange_) use.outer_state = exchange_->state_bytes();
  if (exchange_) use.communication += exchange_->message_bytes();
  if (sharded_) use.communication += sharded_->most_scratch_bytes();
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

void Synchronizer::step(double samples) { impl_->step(samples); }
void Synchronizer::before_inner_step(std::function<void()> hook) { impl_->before_inner_step_ = std::move(hook); }
double Synchronizer::clip_gradients(double max_norm) { return impl_->clip_gradients(max_norm); }
void Synchronizer::finish() { impl_->finish(); }
void Synchronizer::with_consensus(const std::function<void()>& body) { impl_->with_consensus(body); }
std::int64_t Synchronizer::steps() const { return impl_->steps_; }
std::int64_t Synchronizer::rounds() const { return impl_->rounds(); }
const Recipe& Synchronizer::recipe() const { return impl_->recipe_; }
Trace& Synchronizer::trace() { return impl_->trace_; }
const at::Tensor& Synchronizer::live() const { return impl_->live(); }
const at::Tensor& Synchronizer::consensus() const { return impl_->consensus(); }

Pace Synchronizer::pace() const { return impl_->pace(); }
MemoryUse Synchronizer::memory() const { return impl_->memory(); }

}  // namespace co2
