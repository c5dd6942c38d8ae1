#include <co2/error.h>
#include <co2/synchronizer.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/first_failure.h"
#include "flat/outline.h"
#include "front/check_trained.h"
#include "front/optimizer_state.h"
#include "front/rate_factor.h"
#include "front/sharded_optimizer.h"
#include "front/trained_model.h"
#include "island/placed.h"

namespace co2 {

namespace {

/// Of every parameter group, up to the last that trains something; none if the optimizer does not tell, which the Core
/// complains about if it matters.
std::vector<double> rates_of(const torch::optim::Optimizer& optimizer, std::size_t groups) {
  std::vector<double> rates;
  try {
    for (std::size_t g = 0; g < groups; ++g) rates.push_back(optimizer.param_groups()[g].options().get_lr());
  } catch (const c10::Error&) {
    return {};
  }
  return rates;
}

std::vector<double> times(double factor, std::vector<double> rates) {
  for (double& rate : rates) rate *= factor;
  return rates;
}

bool tells_rates(const torch::optim::Optimizer& optimizer) {
  const std::size_t groups = optimizer.param_groups().size();
  return rates_of(optimizer, groups).size() == groups;
}

/// What can be refused is refused here and by the Core, before the model and the optimizer are changed in any way.
TrainedModel checked(const Cluster& cluster, torch::nn::Module& model, const torch::optim::Optimizer& optimizer,
                     const Options& options, const FirstValues& first_values) {
  const Recipe recipe = placed(resolve(options), cluster.size());
  check_trained(model, optimizer);
  if (trains_shard(recipe)) check_elementwise(optimizer);
  if (options.rate_factor != 0 && options.rate_factor != 1 && !tells_rates(optimizer)) {
    throw OptionError(
        fmt::format("rate_factor = {} needs an optimizer whose rate can be read and set (get_lr() and set_lr() of its "
                    "options), and this one's can't: leave it out",
                    options.rate_factor));
  }
  TrainedModel trained = trained_model(model, optimizer, recipe);
  trained.first_values = first_values;
  return trained;
}

}  // namespace

class Synchronizer::Impl {
 public:
  Impl(const Cluster& cluster, torch::nn::Module& model, torch::optim::Optimizer& optimizer, const Options& options,
       const FirstValues& first_values)
      : Impl(cluster, checked(cluster, model, optimizer, options, first_values), optimizer, options) {}

  bool step(double samples, Core::Use use) {
    check_optimizer();
    const double factor = rate_factor();
    const bool update = failure_.watch([&] { return core_.begin_step(times(factor, rates()), samples, use); });
    std::vector<double> used;
    try {
      if (update) {
        for (const auto& hook : before_inner_step_) hook();
        factor_.look();
      }
      const ScaledRates scaled(optimizer_, factor);
      if (update) optimizer_.step();
      used = rates();
    } catch (...) {  // the user's; whoever survives it may step again
      core_.cancel_step();
      throw;
    }
    core_.end_step(used);
    failure_.watch([&] { factor_.after_step(); });
    return update;
  }

  double rate_factor() const { return factor_.at(core_.pace().local_steps); }

  void visit_inner(StateVisitor& visitor) { visit_inner_state(visitor, optimizer_, parameters_, core_.trained()); }

  MemoryUse memory() const {
    MemoryUse use = core_.memory();
    use.inner_state = state_bytes(optimizer_);
    return use;
  }

  const TrainedModel outline_;  // before the Core, which gives the parameters other memory
  Core core_;
  RateFactor factor_;
  FirstFailure failure_;  // of what is the front's own on the network, too
  std::vector<std::function<void()>> before_inner_step_;

 private:
  Impl(const Cluster& cluster, const TrainedModel& model, torch::optim::Optimizer& optimizer, const Options& options)
      : outline_(outline_of(model)),
        core_(cluster, model, options),
        factor_(cluster, placed(resolve(options), cluster.size()), optimizer),
        optimizer_(optimizer),
        parameters_(model.parameters) {
    for (const auto& group : optimizer.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        if (!parameter.requires_grad()) frozen_.push_back(parameter);
      }
    }
    for (const Parameter& parameter : parameters_) groups_ = std::max(groups_, parameter.group + 1);
    // What the optimizer trains is laid out once: the Core may have given it a shard in place of the parameters.
    const auto& trained = core_.trained();
    const bool as_they_were =
        trained.size() == parameters_.size() && trained.front().tensor.is_same(parameters_.front().tensor);
    if (!as_they_were) train_shard(optimizer_, parameters_, trained);
    for (const auto& group : optimizer_.param_groups()) group_sizes_.push_back(group.params().size());
  }

  std::vector<double> rates() const { return rates_of(optimizer_, groups_); }

  void check_optimizer() const {
    for (const at::Tensor& parameter : frozen_) {
      if (!parameter.requires_grad()) continue;
      throw OptionError(
          "a parameter that did not require a gradient when the Synchronizer was made does now: it would "
          "not be exchanged. Make the Synchronizer after the last change of requires_grad");
    }
    const auto& groups = optimizer_.param_groups();
    const bool same = std::equal(groups.begin(), groups.end(), group_sizes_.begin(), group_sizes_.end(),
                                 [](const auto& group, std::size_t size) { return group.params().size() == size; });
    if (same) return;
    throw OptionError(
        "parameters were added to the optimizer, or taken from it, after the Synchronizer was made: they would not be "
        "exchanged. Make the Synchronizer after the last change of its parameter groups");
  }

  torch::optim::Optimizer& optimizer_;
  std::vector<Parameter> parameters_;
  std::vector<at::Tensor> frozen_;
  std::size_t groups_ = 0;                // up to the last that trains something
  std::vector<std::size_t> group_sizes_;  // parameters that the optimizer has, per group
};

Synchronizer::Synchronizer(const Cluster& cluster, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                           const Options& options, const FirstValues& first_values)
    : impl_(std::make_unique<Impl>(cluster, model, optimizer, options, first_values)) {}
Synchronizer::~Synchronizer() = default;
Synchronizer::Synchronizer(Synchronizer&&) noexcept = default;
Synchronizer& Synchronizer::operator=(Synchronizer&&) noexcept = default;

bool Synchronizer::step(double samples) { return impl_->step(samples, Core::Use::kStep); }
void Synchronizer::skip_step() { impl_->step(1, Core::Use::kSkip); }
void Synchronizer::discard_gradients() { impl_->core_.discard_gradients(); }
void Synchronizer::before_inner_step(std::function<void()> hook) {
  impl_->before_inner_step_.push_back(std::move(hook));
}
double Synchronizer::clip_gradients(double max_norm) { return impl_->core_.clip_gradients(max_norm); }
void Synchronizer::finish() {
  impl_->failure_.watch([&] { impl_->core_.finish(); });
}
void Synchronizer::finish_sharded() {
  impl_->failure_.watch([&] { impl_->core_.finish_sharded(); });
}
void Synchronizer::each_parameter(const ParameterVisitor& visitor) { impl_->core_.each_parameter(visitor); }
void Synchronizer::with_consensus(const std::function<void()>& body) { impl_->core_.with_consensus(body); }
void Synchronizer::restart_clock() { impl_->core_.restart_clock(); }
void Synchronizer::visit(StateVisitor& visitor) {
  impl_->core_.visit(visitor, [this](StateVisitor& to) { impl_->visit_inner(to); });
  impl_->factor_.visit(visitor);
}
void Synchronizer::adopt(StateVisitor& visitor, const std::function<void()>& fill) {
  impl_->factor_.adopt(visitor);
  impl_->core_.adopt(
      visitor, [this](StateVisitor& to) { impl_->visit_inner(to); }, fill);
}
const TrainedModel& Synchronizer::outline() const { return impl_->outline_; }
const std::vector<TrainedTensor>& Synchronizer::trained() const { return impl_->core_.trained(); }
void Synchronizer::settle() { impl_->core_.settle(); }
void Synchronizer::snapshot(std::shared_ptr<StateVisitor> visitor, std::function<void(bool)> over) {
  impl_->factor_.visit(*visitor);
  impl_->core_.snapshot(std::move(visitor), std::move(over), [this](StateVisitor& to) { impl_->visit_inner(to); });
}
std::int64_t Synchronizer::steps() const { return impl_->core_.steps(); }
std::int64_t Synchronizer::rounds() const { return impl_->core_.rounds(); }
const Options& Synchronizer::options() const { return impl_->core_.options(); }
const Options& Synchronizer::asked() const { return impl_->core_.asked(); }
double Synchronizer::rate_factor() const { return impl_->rate_factor(); }
Pace Synchronizer::pace() const { return impl_->core_.pace(); }
Clipping Synchronizer::clipping() const { return impl_->core_.clipping(); }
std::int64_t Synchronizer::left_out() const { return impl_->core_.left_out(); }
Trace& Synchronizer::trace() { return impl_->core_.trace(); }
const at::Tensor& Synchronizer::live() const { return impl_->core_.live(); }
const at::Tensor& Synchronizer::consensus() const { return impl_->core_.consensus(); }
MemoryUse Synchronizer::memory() const { return impl_->memory(); }

}  // namespace co2
