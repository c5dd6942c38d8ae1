#include "train/reporter.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/human.h"
#include "sync/round.h"
#include "train/recipe_text.h"

namespace co2::train {

void Reporter::describe(const RunResult& run, const TrainConfig& config, int workers) {
  message(fmt::format("{} {} ({:.2f} M parameters) on {} ({:.1f} MB), {} worker{}, strategy {}, into {}", run.task,
                      run.model, static_cast<double>(run.parameters) / 1e6, run.data.name,
                      static_cast<double>(run.data.bytes) / 1e6, workers, workers == 1 ? "" : "s",
                      name(run.recipe.strategy), run.out.string()));
  if (run.recipe.zero < config.sync.zero) message(nothing_to_shard_text(config.sync.zero));
  const Recipe& recipe = run.recipe;
  const bool planned = recipe.exchange == Recipe::Exchange::kProgress && !recipe.adaptive;
  if (!planned || workers == recipe.island_size) return;
  const Round first{.local_steps = recipe.local_steps, .fragments = recipe.fragments};
  if (first.launch_step(0) <= config.steps) return;
  message(
      fmt::format("the workers exchange nothing before the end: the run has {}, and the first exchange would be "
                  "after step {} (--local-steps {})",
                  plural(config.steps, "step"), first.launch_step(0), recipe.local_steps));
}

void Reporter::loss(double loss, std::int64_t last_step, double units_per_second) {
  latest_.train_loss = loss;
  latest_.train_loss_step = last_step;
  latest_.units_per_second = units_per_second;
  if (!std::isfinite(loss) && !std::exchange(warned_of_loss_, true)) {
    message(fmt::format("the loss is no longer finite at step {}: lower the rate", last_step));
  }
}

void Reporter::pace(const Pace& pace) {
  if (!pace.bounded || std::exchange(warned_of_bound_, true)) return;
  const double round = pace.local_steps * pace.step_seconds;
  if (pace.transfer_seconds < round) {
    message(
        fmt::format("exchanges take {:.1f} % of the computation with {} local steps, the most that are allowed: raise "
                    "--max-local-steps",
                    100 * pace.cost_seconds / round, pace.local_steps));
    return;
  }
  message(fmt::format(
      "this network is too slow to hide an exchange behind {} steps (max-local-steps): it takes {:.1f} s, {} steps "
      "take {:.1f} s. About {:.0f} Mbit/s would be needed; or raise --max-local-steps, or use --wire int2",
      pace.local_steps, pace.transfer_seconds, pace.local_steps, round, pace.bits_per_second_needed / 1e6));
}

void Reporter::rate_factor(double factor, double learning_rate) {
  if (factor == 1 || std::exchange(told_of_rate_, true)) return;
  message(fmt::format(
      "learning rate {:g}, and more than that on every worker, {:.2f} times by now: as gradients differ, their "
      "mean step would be too short otherwise (--rate-factor 1 switches this off)",
      learning_rate, factor));
}

void Reporter::left_out(double exchanges, std::int64_t last_step) {
  if (exchanges == 0 || std::exchange(warned_of_left_out_, true)) return;
  message(fmt::format(
      "progress that was not finite was left out of {} up to step {}, and the other workers went on without it: lower "
      "the rate, or look at that worker's data",
      plural(std::llround(exchanges), "exchange"), last_step));
}

void Reporter::saved(const SaveReport& report) {
  if (!report.problem.empty()) {
    message(fmt::format("no checkpoint of step {}: {}", report.step, report.problem));
    return;
  }
  if (std::exchange(told_of_checkpoints_, true)) return;
  message(fmt::format("first checkpoint: {} ({:.1f} MB of this worker, training stood still for {:.3f} s)",
                      report.path.string(), static_cast<double>(report.bytes) / 1e6, report.stalled_seconds));
}

void Reporter::record(const Point& point, const Evaluation& evaluation) {
  latest_.step = point.step;
  latest_.wall_seconds = point.wall_seconds;
  latest_.training_seconds = point.training_seconds;
  latest_.validation_loss = evaluation.loss;
  latest_.metrics = evaluation.metrics;
  if (!evaluation.metrics.empty()) latest_metrics_ = evaluation.metrics;
  latest_.learning_rate = point.learning_rate;
  latest_.overlap = point.communication.overlap();
  latest_.exposed_seconds = point.communication.exposed_seconds;
  latest_.transfer_seconds = point.communication.transfer_seconds;
  latest_.bytes = point.communication.bytes;
  latest_.local_steps = point.local_steps;
  latest_.wire = point.wire;
  latest_.clipped = point.clipped;
  metrics_->append(latest_);
  tell_of_metrics();
  if (finished_) return;
  show(point);
  if (!std::isfinite(evaluation.loss)) return;
  std::string line = fmt::format("step {}: validation {} {:.4f}", point.step, words_.loss, evaluation.loss);
  for (std::size_t i = 0; i < evaluation.metrics.size(); ++i) {
    line += fmt::format(", {} {:.4f}", words_.metrics[i], evaluation.metrics[i]);
  }
  message(line);
}

void Reporter::begin_metrics(const std::filesystem::path& path, std::optional<std::int64_t> go_on_after) {
  metrics_.emplace(path, words_, go_on_after);
  if (metrics_->missing() == 0) return;
  message(fmt::format("{} has lost {} of the {} lines that it had at the checkpoint: it goes on without them",
                      path.string(), metrics_->missing(), *go_on_after));
}

std::int64_t Reporter::sync_metrics() {
  metrics_->sync();
  tell_of_metrics();
  return metrics_->lines();
}

void Reporter::finish_metrics() {
  metrics_->sync();
  if (!metrics_->problem().empty()) throw DataError(metrics_->problem());
}

void Reporter::tell_of_metrics() {
  if (metrics_->problem().empty()) {
    warned_of_metrics_ = false;
  } else if (!std::exchange(warned_of_metrics_, true)) {
    message(fmt::format("{}; training goes on, and ends with an error unless that is put right", metrics_->problem()));
  }
}

void Reporter::show(const Point& point) {
  const double per_step = point.wall_seconds / static_cast<double>(std::max<std::int64_t>(point.step, 1));
  screen_.update({.step = point.step,
                  .steps = point.steps,
                  .loss = latest_.train_loss,
                  .metrics = latest_metrics_,
                  .units_per_second = latest_.units_per_second,
                  .overlap = point.communication.overlap(),
                  .local_steps = point.local_steps,
                  .seconds_left = per_step * static_cast<double>(point.steps - point.step)});
}

void Reporter::finish(const Point& point) {
  show(point);
  screen_.finish();
  finished_ = true;
}

}  // namespace co2::train
