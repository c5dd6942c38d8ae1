#include "doctor/step_meter.h"

#include <co2/co2.h>
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/spread.h"
#include "doctor/machine.h"
#include "train/optimizer.h"
#include "train/task.h"

namespace co2::doctor {

namespace {

constexpr int kWarmUp = 3;
constexpr int kSteps = 5;         // enough for a median
constexpr double kAtLeast = 1.0;  // seconds, for models whose steps are over in no time
constexpr double kAtMost = 3.0;   // seconds, for models whose steps take long
constexpr int kOuterPasses = 3;

template <class Step>
StepTimes time_steps(const Step& step) {
  const auto warm_up = Clock::now();
  for (int i = 0; i < kWarmUp && (i == 0 || seconds_since(warm_up) < kAtMost); ++i) step();
  std::vector<double> times;
  const auto begin = Clock::now();
  const auto enough = [&] {
    const double spent = seconds_since(begin);
    return !times.empty() && (spent >= kAtMost || (spent >= kAtLeast && times.size() >= kSteps));
  };
  while (!enough()) {
    const auto start = Clock::now();
    step();
    times.push_back(seconds_since(start));
  }
  const Spread spread = spread_of(std::move(times));
  return {spread.low, spread.median, spread.high, spread.count};
}

}  // namespace

Computation measure_steps(const train::TrainConfig& config, int rank, int size, Group& group) {
  const train::TaskType& type = train::task_type(config.task);
  std::unique_ptr<train::Task> task;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  group.all_or_none("make its model", [&] {
    task = type.make(config, {.rank = rank,
                              .size = size,
                              .agree = [&](bool mine) { return group.agree(mine); },
                              .say = [](const std::string&) {},
                              .cancelled = [] { return false; }});
    optimizer = train::make_optimizer(config, task->model());
  });
  Computation result;
  const std::vector<at::Tensor> parameters = task->model().parameters();
  for (const at::Tensor& parameter : parameters) result.parameters += parameter.numel();
  result.units_per_step = config.batch * type.units_per_sample(config);

  const Cluster alone = Cluster::alone();
  std::optional<Synchronizer> sync;
  sync.emplace(alone, task->model(), *optimizer, Options{.strategy = Strategy::kNone}, task->first_values());
  if (config.gradient_clip > 0) {
    sync->before_inner_step([&] { torch::nn::utils::clip_grad_norm_(parameters, config.gradient_clip); });
  }
  group.barrier();
  result.step = time_steps([&] {
    optimizer->zero_grad();
    const at::Tensor loss = task->next_loss();
    loss.backward();
    loss.item<double>();
    sync->step();
  });

  // With nobody to talk to, an exchange is its outer passes; a round of one step has one of the whole model.
  sync.emplace(alone, task->model(), *optimizer,
               Options{.strategy = Strategy::kCo2, .local_steps = 1, .wire = config.sync.wire});
  sync->step();  // nothing to apply yet
  const double before = sync->trace().seconds(SpanKind::kOuter);
  for (int i = 0; i < kOuterPasses; ++i) sync->step();
  result.outer_seconds = (sync->trace().seconds(SpanKind::kOuter) - before) / kOuterPasses;
  result.peak_bytes = own_peak_bytes();
  return result;
}

}  // namespace co2::doctor
