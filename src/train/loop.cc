#include "train/loop.h"

#include <co2/co2.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/cores.h"
#include "base/files.h"
#include "cluster/group.h"
#include "island/placed.h"
#include "options/recipe.h"
#include "processes/placement.h"
#include "processes/screen.h"
#include "sync/control_channel.h"
#include "train/earlier_run.h"
#include "train/every.h"
#include "train/folders.h"
#include "train/fused_adamw.h"
#include "train/loop_state.h"
#include "train/optimizer.h"
#include "train/reporter.h"
#include "train/run_files.h"
#include "train/schedule.h"
#include "train/task.h"
#include "train/validate.h"

namespace co2::train {
namespace {

// In the control channel: loss, steps, units, left out; wishes to stop and to save.
constexpr int kFigures = 4;
constexpr int kWishes = 2;
constexpr std::size_t kSpansInTrace = 400'000;  // over all workers: what Perfetto still opens with ease

/// Often enough that a wish to stop is heard soon, rarely enough that nobody waits for the answer.
int control_period(std::int64_t steps, double step_seconds) {
  constexpr std::int64_t kLongest = 10;
  constexpr double kLongestSeconds = 2;
  const auto longest = static_cast<double>(std::clamp<std::int64_t>(steps / 100, 1, kLongest));
  return static_cast<int>(std::clamp(kLongestSeconds / std::max(step_seconds, 1e-9), 1.0, longest));
}

/// One worker's part in a run.
class Run {
 public:
  Run(const TrainConfig& config, const Cluster& cluster, const RunHooks& hooks)
      : config_(config),
        cluster_(cluster),
        hooks_(hooks),
        type_(task_type(config.task)),
        group_(cluster.communicator("eval")),
        save_every_(parse_every("checkpoint_every", config.checkpoint_every)),
        control_(cluster.communicator("control")) {
    if (cluster.rank() == 0) reporter_.emplace(hooks.screen, type_.words);
  }

  RunResult execute() {
    prepare_folder();
    if (result_.was_complete) return result_;
    prepare_task();
    result_.recipe = placed(resolve(config_.sync), cluster_.size());
    optimizer_ = make_optimizer(config_, task_->model());
    sync_.emplace(cluster_, task_->model(), *optimizer_, config_.sync, task_->first_values());
    if (config_.gradient_clip > 0) {
      sync_->before_inner_step([this] { sync_->clip_gradients(config_.gradient_clip); });
    }
    if (auto* fused = dynamic_cast<FusedAdamW*>(optimizer_.get())) fused->allocate_state();
    describe();
    begin_saving();
    if (config_.resume) resume();
    if (speaks()) {
      reporter_->begin_metrics(config_.out / "metrics.jsonl",
                               config_.resume ? std::optional(state_.metrics_lines) : std::nullopt);
    }
    group_.barrier();
    origin_ = Clock::now();
    if (state_.steps == 0) {
      const Evaluation before = evaluate();
      state_.validation_loss_before = before.loss;
      state_.metrics_before = before.metrics;
    }
    result_.validation_before = {state_.validation_loss_before, state_.metrics_before};
    train();
    result_.validation = evaluate();
    result_.wall_seconds = wall_seconds();
    record(result_.validation);
    result_.pace = sync_->pace();
    result_.recipe.local_steps = result_.pace.local_steps;  // as in force at the end
    result_.recipe.fragments = result_.pace.fragments;
    result_.recipe.wire = result_.pace.wire;
    result_.rate_factor = sync_->rate_factor();
    result_.clipping = sync_->clipping();
    collect_figures();
    write_results();
    return result_;
  }

 private:
  bool speaks() const { return reporter_.has_value(); }
  bool stop_wished() const { return hooks_.stop_wished && hooks_.stop_wished(); }

  void prepare_folder() {
    group_.all_or_none("write to the output folder", [&] {
      if (!speaks()) return;
      if (config_.out.empty()) config_.out = claim_default_folder(config_);
      if (!hooks_.folder_is_taken) folder_lock_.emplace(lock_run_folder(config_.out));
      result_.was_complete = config_.resume && is_complete(config_.out, config_.steps);
      if (result_.was_complete) return;
      const std::string text = hooks_.config_text ? hooks_.config_text(config_) : "";
      config_.resume ? resume_run_folder(config_.out, text) : begin_run_folder(config_.out, text);
    });
    result_.was_complete = !group_.agree(!result_.was_complete);  // rank 0 knows
    config_.out = group_.gather(config_.out.string()).front();    // whoever has to do with checkpoints must know it
  }

  void begin_saving() {
    if (save_every_.never() && !config_.resume) return;
    saver_.emplace(cluster_, config_.out,
                   SaverOptions{.keep = config_.keep,
                                .about = {{"task", config_.task},
                                          {"model", model_of(config_)},
                                          {"strategy", std::string(name(config_.sync.strategy))}}});
  }

  /// All that defines the future of this worker's run and is not the Synchronizer's.
  void visit_loop(StateVisitor& visitor) {
    state_.metrics_before.resize(type_.words.metrics.size());
    state_.visit(visitor);
    task_->visit(visitor);
    if (state_.period == 0) return;
    if (!channel_) open_channel();
    // Sums that other workers were about to make are of no use.
    if (!(visitor.reads() && saver_->reshapes())) channel_->visit(visitor, "control", kWishes);
  }

  void resume() {
    const auto step = saver_->restore(*sync_, [this](StateVisitor& visitor) { visit_loop(visitor); });
    group_.all_or_none("go on in the output folder", [&] {
      if (speaks()) accept_next_config(config_.out);
    });
    saved_at_ = step;
    if (!speaks()) return;
    if (state_.newest_loss_step > 0) reporter_->loss(state_.newest_loss, state_.newest_loss_step, 0);
    for (const auto& [path, problem] : saver_->passed_over()) {
      reporter_->message(fmt::format("passed over {}: {}", path.string(), problem));
    }
    if (saver_->reshapes()) {
      reporter_->message(
          fmt::format("the checkpoint is of another number of workers, island size or ZeRO stage: what was in flight "
                      "was applied, and all begin with what {} had",
                      result_.recipe.exchange == Recipe::Exchange::kNothing ? "worker 0" : "the workers together"));
    }
    reporter_->message(step ? fmt::format("going on after step {}", *step)
                            : fmt::format("no checkpoint in {}: from the beginning", config_.out.string()));
  }

  void save() {
    state_.wall_seconds = wall_seconds();
    state_.training_seconds = trained();
    state_.communication = communication();
    if (speaks()) state_.metrics_lines = reporter_->sync_metrics();
    saver_->save(*sync_, [this](StateVisitor& visitor) { visit_loop(visitor); });
    saved_at_ = state_.steps;
    last_saved_ = Clock::now();
    sync_->restart_clock();  // no computing; but it is part of what training takes
  }

  /// From here a run goes on that was stopped, or that is given more steps: before finish(), for workers that have been
  /// averaged are not those that would have trained on. It is not part of what training takes.
  void save_the_end() {
    const bool wanted = result_.interrupted || !save_every_.never();
    if (wanted && saved_at_ != state_.steps) save();
    saver_->wait();
    tell_of_checkpoints();
  }

  void prepare_task() {
    const TaskContext context{
        .rank = cluster_.rank(),
        .size = cluster_.size(),
        .agree = [this](bool mine) { return group_.agree(mine); },
        .say = [this](const std::string& line) { say(line); },
        .cancelled = [this] { return stop_wished(); },
    };
    group_.all_or_none("load its data", [&] { task_ = type_.make(config_, context); });
    group_.all_or_none("read the weights to begin with", [&] {  // the Synchronizer gives all workers rank 0's
      if (speaks() && !config_.init_from.empty()) task_->import_model(config_.init_from);
    });
    const auto digests = group_.gather(task_->data().sha256);
    if (std::set<std::string>(digests.begin(), digests.end()).size() > 1) {
      throw DataError(
          fmt::format("the workers have different versions of the data {}: compare their caches", task_->data().name));
    }
  }

  /// Any worker may have news about its data; rank 0's go above the progress line.
  void say(const std::string& line) {
    if (speaks()) {
      reporter_->message(line);
    } else {
      processes::show(hooks_.screen, line + "\n");
    }
  }

  void describe() {
    result_.task = config_.task;
    result_.model = model_of(config_);
    result_.words = type_.words;
    for (const auto& parameter : task_->model().parameters()) result_.parameters += parameter.numel();
    result_.data = task_->data();
    result_.launcher = cluster_.launcher();
    result_.out = speaks() ? config_.out : "";
    if (speaks()) reporter_->describe(result_, config_, cluster_.size());
  }

  void train() {
    const RateSchedule schedule(config_.schedule, config_.learning_rate, config_.steps, config_.warmup,
                                config_.final_rate);
    const auto units =
        static_cast<double>(config_.batch * type_.units_per_sample(config_) * config_.sync.accumulation_steps);
    const auto recent = static_cast<std::size_t>(std::max<std::int64_t>(config_.steps / 20, 1));

    origin_of_this_life();
    resume_clock();
    evaluate_if_due();  // whoever was stopped at such a step has not done it
    while (state_.steps < config_.steps) {
      set_rate(*optimizer_, schedule.at(state_.steps));
      state_.rate = sync_->rate_factor() * schedule.at(state_.steps);
      const Clock::time_point step_began = Clock::now();
      const double loss = step();
      if (state_.steps++ == 0) {
        state_.first_loss = loss;
        const double step_seconds = group_.sum({seconds_since(step_began)})[0] / cluster_.size();
        // Virtual workers have no clock that means anything, and what they learn must not depend on one.
        state_.period = control_period(config_.steps, config_.virtual_workers ? 0 : step_seconds);
        open_channel();
      }
      state_.units += units * cluster_.size();
      state_.losses.push_back(loss);
      if (state_.losses.size() > recent) state_.losses.pop_front();
      bool save_now = save_every_.steps > 0 && state_.steps % save_every_.steps == 0;
      const bool wishes_save = save_every_.seconds > 0 && seconds_since(last_saved_) >= save_every_.seconds;
      const std::vector<double> mine = {
          loss, 1, units, newly_left_out(), stop_wished() ? 1.0 : 0.0, wishes_save && speaks() ? 1.0 : 0.0};
      if (const auto sums = channel_->step(mine)) {
        on_control(*sums, state_.steps - state_.period);
        const auto wishes = std::span(*sums).last<kWishes>();
        result_.interrupted = wishes[0] > 0;
        save_now = save_now || wishes[1] > 0;
      }
      if (!result_.interrupted) evaluate_if_due();
      const bool at_the_end = result_.interrupted || state_.steps == config_.steps;
      if (saver_ && save_now && !at_the_end) save();
      if (saver_) tell_of_checkpoints();
      if (result_.interrupted) break;
    }
    pause_clock();
    // What comes once per run, however long it is, is apart from the figures of training, which would otherwise depend
    // on its length.
    during_training_ = sync_->trace().total();
    if (saver_) save_the_end();
    const Clock::time_point training_ended = Clock::now();
    sync_->finish_sharded();  // the largest models do not fit on one worker
    result_.final_exchange_seconds = seconds_since(training_ended);
    if (channel_) channel_->drain();

    // An interrupted run has taken fewer steps than were planned: the share is of those.
    result_.steps = state_.steps;
    std::deque<double>& losses = state_.losses;
    const auto last = std::min(losses.size(), static_cast<std::size_t>(std::max<std::int64_t>(result_.steps / 20, 1)));
    losses.erase(losses.begin(), losses.end() - static_cast<std::ptrdiff_t>(last));
    double sum = 0;
    for (const double loss : losses) sum += loss;
    const auto totals = group_.sum({state_.first_loss, sum, static_cast<double>(losses.size())});
    result_.train_loss_before = totals[0] / cluster_.size();
    result_.train_loss = totals[1] / totals[2];
    result_.units = std::llround(state_.units);
    result_.training_seconds = trained();
    if (!speaks()) return;
    reporter_->loss(result_.train_loss, result_.steps, result_.units_per_second());
    reporter_->finish(point());
  }

  void evaluate_if_due() {
    const bool due = config_.eval_every > 0 && state_.steps % config_.eval_every == 0 && state_.steps < config_.steps;
    if (!due || state_.evaluated_at == state_.steps) return;
    pause_clock();
    Evaluation evaluation;
    sync_->with_consensus([&] { evaluation = evaluate(); });
    record(evaluation);
    state_.evaluated_at = state_.steps;
    resume_clock();
  }

  void open_channel() { channel_.emplace(control_, state_.period, kFigures + kWishes); }

  double newly_left_out() {
    const std::int64_t before = std::exchange(state_.left_out, sync_->left_out());
    return static_cast<double>(state_.left_out - before);
  }

  void tell_of_checkpoints() {
    for (const SaveReport& report : saver_->reports()) {
      result_.checkpoints.add(report);
      if (speaks()) reporter_->saved(report);
    }
  }

  /// One optimizer step; returns this worker's mean loss.
  double step() {
    optimizer_->zero_grad();
    const int passes = config_.sync.accumulation_steps;
    double total = 0;
    for (int pass = 0; pass < passes; ++pass) {
      const auto loss = task_->next_loss();
      (passes == 1 ? loss : loss / passes).backward();
      total += loss.item<double>() / passes;
    }
    sync_->step();
    return total;
  }

  /// Sums over workers and a period, of which `last_step` was the last step.
  void on_control(const std::vector<double>& sums, std::int64_t last_step) {
    if (!speaks()) return;
    const double now = trained();
    state_.newest_loss = sums[0] / sums[1];
    state_.newest_loss_step = last_step;
    reporter_->loss(state_.newest_loss, last_step, sums[2] / std::max(now - state_.last_control, 1e-9));
    state_.last_control = now;
    reporter_->pace(sync_->pace());
    reporter_->left_out(sums[3], last_step);
    if (config_.sync.rate_factor == 0) reporter_->rate_factor(sync_->rate_factor(), config_.learning_rate);
    record({});
  }

  Reporter::Point point() {
    return {.step = state_.steps,
            .steps = config_.steps,
            .wall_seconds = wall_seconds(),
            .training_seconds = trained(),
            .learning_rate = state_.rate,
            .local_steps = sync_->pace().local_steps,
            .wire = sync_->pace().wire,
            .clipped = sync_->clipping().clipped,
            .communication = communication()};
  }

  void record(const Evaluation& evaluation) {
    if (speaks()) reporter_->record(point(), evaluation);
  }

  /// Mean over the validation data of all workers, each with the parameters that are in its model now.
  Evaluation evaluate() {
    const at::NoGradGuard no_grad;
    const auto mine = task_->validate();
    std::vector<double> sums = {mine.loss_sum, mine.count};
    sums.insert(sums.end(), mine.metrics.begin(), mine.metrics.end());
    sums = group_.sum(sums);
    Evaluation all{.loss = sums[0] / sums[1]};
    for (std::size_t i = 2; i < sums.size(); ++i) all.metrics.push_back(sums[i] / sums[1]);
    return all;
  }

  /// Since the run began, in all its lives: between two of them no time goes by.
  double wall_seconds() const { return former_wall_ + seconds_since(origin_); }
  Overlap communication() {
    Overlap all = during_training_ ? *during_training_ : sync_->trace().total();
    all.transfer_seconds += former_.transfer_seconds;
    all.exposed_seconds += former_.exposed_seconds;
    all.bytes += former_.bytes;
    return all;
  }
  /// What the loop's state has of former lives is what the clocks of this one go on from.
  void origin_of_this_life() {
    former_wall_ = state_.wall_seconds;
    former_ = state_.communication;
    trained_ = state_.training_seconds;
    last_saved_ = Clock::now();
  }

  /// The training clock, which stands still during evaluations.
  double trained() const { return trained_ + (resumed_ ? seconds_since(*resumed_) : 0); }
  void resume_clock() {
    resumed_ = Clock::now();
    sync_->restart_clock();
  }
  void pause_clock() {
    trained_ = trained();
    resumed_.reset();
  }

  void collect_figures() {
    const auto& trace = sync_->trace();
    MemoryUse memory = sync_->memory();
    memory.checkpoint = result_.checkpoints.largest;
    const WorkerFigures mine{
        .transfer_seconds = communication().transfer_seconds,
        .exposed_seconds = communication().exposed_seconds,
        .compute_seconds = trace.seconds(SpanKind::kCompute),
        .outer_seconds = trace.seconds(SpanKind::kOuter),
        .bytes_sent = communication().bytes,
        .left_out = sync_->left_out(),
        .memory = memory,
        .peak_megabytes = peak_resident_megabytes(),
        .threads = at::get_num_threads(),
        .cores = processes::format_cores(usable_cores()),
        .host = host_name(),
    };
    for (const auto& text : group_.gather(to_text(mine))) result_.workers.push_back(figures_from_text(text));
  }

  /// What is most precious first. A file that can't be written keeps no other one from being written, and then all
  /// workers fail together: one that had ended alone would look to the others like a network that is down.
  void write_results() {
    const auto timelines = group_.gather(perfetto_json(newest_spans(), origin_, cluster_.rank()));
    group_.all_or_none("write all results of the run", [&] {
      std::vector<std::string> problems;
      const auto attempt = [&](const auto& write) {
        try {
          write();
        } catch (const DataError& problem) {
          problems.emplace_back(problem.what());
        }
      };
      attempt([&] { write_model(); });
      const bool together = result_.recipe.zero == 3;
      if (speaks() || together) {
        attempt([&] { result_.sample = task_->sample(speaks() ? config_.out : ""); });
      }
      if (!speaks()) return;
      attempt([&] { reporter_->finish_metrics(); });
      attempt([&] { write_atomically(config_.out / kSummaryFile, summary_json(result_)); });
      attempt([&] { write_atomically(config_.out / "trace.json", merged_trace(timelines)); });
      if (problems.empty()) return;
      throw DataError(fmt::format("{}; the run has ended, and its other results are in {}", fmt::join(problems, "; "),
                                  config_.out.string()));
    });
  }

  std::vector<Span> newest_spans() {
    auto spans = sync_->trace().spans();
    const auto limit = kSpansInTrace / static_cast<std::size_t>(cluster_.size());
    if (spans.size() > limit) spans.erase(spans.begin(), spans.end() - static_cast<std::ptrdiff_t>(limit));
    return spans;
  }

  /// Whoever can't write still takes part in showing the model, which is a collective.
  void write_model() {
    bool shown = false;
    const auto show = [&](const ParameterVisitor& visitor) {
      shown = true;
      std::exception_ptr problem;
      sync_->each_parameter([&](const std::string& name, const at::Tensor& values) {
        if (problem) return;
        try {
          visitor(name, values);
        } catch (...) {
          problem = std::current_exception();
        }
      });
      if (problem) std::rethrow_exception(problem);
    };
    const auto nothing = [](const std::string&, const at::Tensor&) {};
    if (!speaks()) return show(nothing);
    try {
      ensure_writable(config_.out / "model");
      task_->export_model(config_.out / "model", show);
    } catch (...) {
      if (!shown) show(nothing);
      throw;
    }
  }

  TrainConfig config_;
  const Cluster& cluster_;
  const RunHooks& hooks_;
  const TaskType& type_;
  Group group_;
  std::optional<FolderLock> folder_lock_;  // rank 0 only, unless whoever started us has it
  std::optional<Reporter> reporter_;       // rank 0 only
  std::unique_ptr<Task> task_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::optional<Synchronizer> sync_;

  const Every save_every_;
  std::optional<Saver> saver_;  // unless no checkpoints are wanted
  LoopState state_;
  std::shared_ptr<Communicator> control_;
  std::optional<ControlChannel> channel_;  // once the first step has shown how long a step is

  RunResult result_;
  std::optional<Overlap> during_training_;    // once it is over: without the exchange at the end
  Clock::time_point origin_;                  // the same instant on all workers, up to a barrier
  std::optional<Clock::time_point> resumed_;  // the training clock runs
  double trained_ = 0;                        // what it showed when it was stopped
  double former_wall_ = 0;                    // of former lives of the run
  Overlap former_;
  Clock::time_point last_saved_;
  std::optional<std::int64_t> saved_at_;  // the step of the newest checkpoint
};

}  // namespace

RunResult run(const TrainConfig& config, const Cluster& cluster, const RunHooks& hooks) {
  validate(config);
  return Run(settled(config), cluster, hooks).execute();
}

}  // namespace co2::train
