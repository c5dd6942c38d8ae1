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

#include "flat/flat_parameters.h"
#include "sync/buffer_average.h"
#include "sync/fragment.h"
#include "sync/gradient_reducer.h"
#include "sync/same_everywhere.h"
#include "sync/schedule.h"
#include "sync/transfer.h"
#include "sync/wire_format.h"

namespace co2 {

class Synchronizer::Impl {
 public:
  Impl(const Cluster& cluster, torch::nn::Module& model, torch::optim::Optimizer& optimizer, const Options& options);
  ~Impl();

  void step(double samples);
  void finish();
  void with_consensus(const std::function<void()>& body);

  Recipe recipe_;
  Trace trace_;
  std::function<void()> before_inner_step_;
  std::int64_t steps_ = 0;
  FlatParameters flat_;
  at::Tensor consensus_;  // the live buffer itself if nothing but gradients is exchanged
  at::Tensor momentum_;
  std::unique_ptr<MessagePool> pool_;
  Schedule schedule_;

 private:
  void give_everybody_the_same_start(torch::nn::Module& model);
  void make_fragments();
  void read_rates();
  void exchange_what_is_due();
  void launch(std::size_t index, std::int64_t delay);
  void apply_all_in_flight();
  void average_live_parameters();

  torch::optim::Optimizer& optimizer_;
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<WireFormat> wire_;
  std::vector<Fragment> fragments_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<BufferAverage> buffers_;
  std::vector<double> rates_;  // the inner rate in force, per parameter group
  Clock::time_point last_return_ = Clock::now();
};

namespace {
torch::optim::Optimizer& supported(torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr) {
    throw OptionError("LBFGS evaluates the loss inside its step, which step() can't do: use another optimizer");
  }
  return optimizer;
}
}  // namespace

Synchronizer::Impl::Impl(const Cluster& cluster, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                         const Options& options)
    : recipe_(resolve(options)),
      flat_(supported(optimizer)),
      schedule_(recipe_.local_steps, recipe_.fragments, recipe_.delay),
      optimizer_(optimizer),
      communicator_(cluster.communicator("data")),
      rates_(optimizer.param_groups().size(), 1.0) {
  check_same_everywhere(*communicator_, flat_, recipe_);
  give_everybody_the_same_start(model);
  consensus_ = flat_.data();
  if (recipe_.exchange == Recipe::Exchange::kNothing) return;
  buffers_ = std::make_unique<BufferAverage>(communicator_, model.buffers(), trace_);
  if (recipe_.exchange == Recipe::Exchange::kGradients) {
    reducer_ = std::make_unique<GradientReducer>(communicator_, flat_.parameters(), recipe_.bucket_bytes,
                                                 recipe_.accumulation_steps, trace_);
  } else {
    make_fragments();
  }
}

Synchronizer::Impl::~Impl() {
  for (Fragment& fragment : fragments_) fragment.abandon();
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

void Synchronizer::Impl::make_fragments() {
  consensus_ = flat_.data().clone();
  momentum_ = at::zeros_like(consensus_);
  wire_ = plain_wire(communicator_, consensus_, recipe_.bucket_bytes);
  pool_ = std::make_unique<MessagePool>(*wire_, recipe_.restart == Restart::kKeep);
  for (const Range& range : flat_.fragments(recipe_.fragments)) {
    std::vector<Fragment::Part> parts;
    for (std::size_t g = 0; g < flat_.groups().size(); ++g) {
      const Range& group = flat_.groups()[g];
      const Range common{std::max(range.begin, group.begin), std::min(range.end, group.end)};
      if (common.size() > 0) parts.push_back({{common.begin - range.begin, common.end - range.begin}, g});
    }
    const auto cut = [&](const at::Tensor& t) { return t.narrow(0, range.begin, range.size()); };
    fragments_.emplace_back(static_cast<int>(fragments_.size()), recipe_, cut(flat_.data()), cut(consensus_),
                            cut(momentum_), std::move(parts));
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

void Synchronizer::Impl::step(double samples) {
  if (!(samples >= 0 && std::isfinite(samples))) {
    throw OptionError(fmt::format("samples = {} is not allowed: it must be 0 or a positive number", samples));
  }
  const std::int64_t round = schedule_.round(steps_ + 1);
  if (reducer_) {
    if (samples != 1) {
      throw OptionError(
          "ddp averages gradients equally, before step() could weigh them: call step() without samples, "
          "and weigh the loss instead");
    }
    trace_.record({SpanKind::kCompute, last_return_, Clock::now(), round, -1, 0});
    reducer_->finish(round);
    last_return_ = Clock::now();
  }
  if (before_inner_step_) before_inner_step_();
  optimizer_.step();
  ++steps_;
  trace_.record({SpanKind::kCompute, last_return_, Clock::now(), round, -1, 0});

  const at::NoGradGuard no_grad;
  flat_.check_frozen();
  read_rates();
  for (Fragment& fragment : fragments_) fragment.add_samples(samples);
  exchange_what_is_due();
  last_return_ = Clock::now();
}

void Synchronizer::Impl::exchange_what_is_due() {
  // What was measured for `paper` includes the steps that the apply is about to overwrite, so it must go first. With
  // the other restarts, progress that was just replaced by the average must not be sent again, so the apply goes first;
  // that also frees a buffer for the launch.
  const bool launch_first = recipe_.restart == Restart::kPaper;
  for (const bool launching : {launch_first, !launch_first}) {
    for (std::size_t i = 0; i < fragments_.size(); ++i) {
      Fragment& fragment = fragments_[i];
      const int delay = schedule_.delay(static_cast<int>(i));
      if (launching && schedule_.launches(static_cast<int>(i), steps_)) launch(i, delay);
      if (!launching && fragment.in_flight() && fragment.oldest_apply_step() == steps_) {
        fragment.apply(*wire_, *pool_, rates_, trace_);
      }
    }
  }
  // Blocking exchanges of strategies that apply first were launched just now.
  for (Fragment& fragment : fragments_) {
    if (fragment.in_flight() && fragment.oldest_apply_step() == steps_) fragment.apply(*wire_, *pool_, rates_, trace_);
  }
  if (buffers_ && steps_ % recipe_.local_steps == 0) {
    buffers_->apply();
    buffers_->launch(schedule_.round(steps_));
    if (recipe_.delay == 0) buffers_->apply();
  }
}

void Synchronizer::Impl::launch(std::size_t index, std::int64_t delay) {
  const Clock::time_point begin = Clock::now();
  const std::int64_t round = schedule_.round(steps_);
  fragments_[index].launch(*wire_, *pool_, rates_, steps_ + delay, round);
  trace_.record({SpanKind::kOuter, begin, Clock::now(), round, static_cast<int>(index), 0});
}

void Synchronizer::Impl::apply_all_in_flight() {
  while (true) {
    Fragment* oldest = nullptr;
    for (Fragment& fragment : fragments_) {
      if (!fragment.in_flight()) continue;
      if (oldest == nullptr || fragment.oldest_apply_step() < oldest->oldest_apply_step()) oldest = &fragment;
    }
    if (oldest == nullptr) return;
    oldest->apply(*wire_, *pool_, rates_, trace_, /*finishing=*/true);
  }
}

// Fragment by fragment: a copy of the whole model at once would be the peak of memory of a whole run.
void Synchronizer::Impl::average_live_parameters() {
  for (const Range& range : flat_.fragments(recipe_.fragments)) {
    const at::Tensor live = flat_.data().narrow(0, range.begin, range.size());
    const at::Tensor average = live.clone();
    const auto works = all_reduce_in_buckets(*communicator_, average, recipe_.bucket_bytes);
    const auto bytes = communicator_->all_reduce_wire_bytes(static_cast<std::int64_t>(average.nbytes()));
    wait_for_transfer(works, bytes, schedule_.round(steps_), -1, trace_);
    average.div_(communicator_->size());
    live.copy_(average);
    consensus_.narrow(0, range.begin, range.size()).copy_(average);
  }
}

void Synchronizer::Impl::finish() {
  if (recipe_.exchange == Recipe::Exchange::kNothing) return;
  const at::NoGradGuard no_grad;
  apply_all_in_flight();
  if (recipe_.exchange == Recipe::Exchange::kProgress) {
    average_live_parameters();
    for (Fragment& fragment : fragments_) fragment.forget_samples();
  }
  buffers_->apply();
  buffers_->launch(schedule_.round(steps_));
  buffers_->apply();
}

void Synchronizer::Impl::with_consensus(const std::function<void()>& body) {
  struct Restore {
    FlatParameters& flat;
    ~Restore() { flat.point_to(flat.data()); }
  };
  flat_.point_to(consensus_);
  const Restore restore{flat_};
  body();
}

Synchronizer::Synchronizer(const Cluster& cluster, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                           const Options& options)
    : impl_(std::make_unique<Impl>(cluster, model, optimizer, options)) {}
Synchronizer::~Synchronizer() = default;

void Synchronizer::step(double samples) { impl_->step(samples); }
void Synchronizer::before_inner_step(std::function<void()> hook) { impl_->before_inner_step_ = std::move(hook); }
void Synchronizer::finish() { impl_->finish(); }
void Synchronizer::with_consensus(const std::function<void()>& body) { impl_->with_consensus(body); }
std::int64_t Synchronizer::steps() const { return impl_->steps_; }
std::int64_t Synchronizer::rounds() const { return impl_->steps_ == 0 ? 0 : impl_->schedule_.round(impl_->steps_) + 1; }
const Recipe& Synchronizer::recipe() const { return impl_->recipe_; }
Trace& Synchronizer::trace() { return impl_->trace_; }
const at::Tensor& Synchronizer::live() const { return impl_->flat_.data(); }
const at::Tensor& Synchronizer::consensus() const { return impl_->consensus_; }

std::int64_t Synchronizer::outer_state_bytes() const {
  if (!impl_->pool_) return 0;
  return static_cast<std::int64_t>(impl_->consensus_.nbytes() + impl_->momentum_.nbytes()) +
         impl_->pool_->bytes_allocated();
}

}  // namespace co2
