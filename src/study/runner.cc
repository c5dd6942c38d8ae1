#include "study/runner.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/cores.h"
#include "base/human.h"
#include "processes/signal_queue.h"
#include "study/progress.h"
#include "study/selection.h"
#include "study/training.h"

namespace co2::study {

namespace {

using Clock = std::chrono::steady_clock;

/// A run and what people call it.
struct Job {
  const Run* run = nullptr;
  std::string label;
};

struct Slot {
  std::vector<int> cores;
  std::unique_ptr<Training> training{};  // while it runs
  Job job{};
  Clock::time_point begin{};
};

class Runner {
 public:
  Runner(const StudyFile& file, const Plan& plan, Results& results, const RunnerOptions& options)
      : file_(file), plan_(plan), results_(results), folder_(options.folder) {
    const std::vector<int> cores = usable_cores();
    for (int i = 0; i < options.jobs; ++i) {
      slots_.push_back({.cores = {cores[static_cast<std::size_t>(i) % cores.size()]}});
    }
    for (const std::string& warning : results.warnings()) progress_.say(warning);
  }

  int run() {
    survey();
    progress_.say(fmt::format("{}, {} of them done before, {} side by side, into {}", all_runs(), done_, slots_.size(),
                              folder_.string()));
    while (signal_ == 0) {
      start_what_can_start();
      if (!running()) break;
      wait_for_news();
      progress_.update([this] { return line(); });
    }
    for (Slot& slot : slots_) slot.training.reset();  // ends it
    if (signal_ != 0) {
      progress_.say(fmt::format("stopped by signal {} ({}): {} of {} done, the same command goes on", signal_,
                                strsignal(signal_), done_, all_runs()));
      return 128 + signal_;
    }
    if (failed_ > 0) {
      progress_.say(fmt::format("{} of {} failed: the same command tries {} again", failed_, all_runs(),
                                failed_ == 1 ? "it" : "them"));
    }
    for (const Row& row : plan_.rows) {
      if (chosen(row)) continue;
      progress_.say(fmt::format("{}: no trial succeeded, so there is nothing to run it with", row.label));
      failed_ += row.trials[0].runs.size();
    }
    return failed_ > 0 ? 1 : 0;
  }

 private:
  /// What is there already, and what is to come. For rows whose values are not chosen yet, any trial stands for the
  /// best: their runs cost the same.
  void survey() {
    std::set<std::string> seen;
    total_ = plan_.count();
    const auto count = [&](const Run& run) {
      if (!seen.insert(run.key).second) return;
      const Result* result = results_.done(run.key);
      if (result == nullptr) {
        samples_left_ += run.samples();
        return;
      }
      ++done_;
      note_speed(run, *result);
    };
    for (const Row& row : plan_.rows) {
      for (const Trial& trial : row.trials) std::ranges::for_each(trial.tries, count);
      std::ranges::for_each(row.trials[chosen(row).value_or(0)].runs, count);
    }
  }

  std::optional<std::size_t> chosen(const Row& row) const {
    return select(row, results_, file_.metric, file_.higher_is_better).trial;
  }

  void note_speed(const Run& run, const Result& result) {
    samples_timed_ += run.samples();
    seconds_timed_ += result.wall_seconds;
  }

  bool running() const {
    return std::ranges::any_of(slots_, [](const Slot& slot) { return slot.training != nullptr; });
  }

  void start_what_can_start() {
    for (Slot& slot : slots_) {
      if (slot.training) continue;
      const std::optional<Job> job = next();
      if (!job) return;
      begun_.insert(job->run->key);
      slot.job = *job;
      slot.begin = Clock::now();
      slot.training = std::make_unique<Training>(*job->run, folder_ / "runs", slot.cores, signals_.old_mask());
    }
  }

  std::optional<Job> next() const {
    const auto missing = [this](const Run& run) {
      return results_.done(run.key) == nullptr && !begun_.contains(run.key);
    };
    for (const Row& row : plan_.rows) {
      for (const Trial& trial : row.trials) {
        for (const Run& run : trial.tries) {
          if (missing(run)) return Job{&run, fmt::format("{}, {}, seed {}", row.label, trial.text(), run.seed)};
        }
      }
      const auto best = chosen(row);
      if (!best || is_tried(row)) continue;
      for (const Run& run : row.trials[*best].runs) {
        if (missing(run)) return Job{&run, fmt::format("{}, seed {}", row.label, run.seed)};
      }
    }
    return std::nullopt;
  }

  /// A try that failed before and is under way again may still turn out best.
  bool is_tried(const Row& row) const {
    return std::ranges::any_of(slots_, [&](const Slot& slot) {
      return slot.training && std::ranges::any_of(row.trials, [&](const Trial& trial) {
               return std::ranges::find(trial.tries, slot.job.run->key, &Run::key) != trial.tries.end();
             });
    });
  }

  void wait_for_news() {
    constexpr int kTickMilliseconds = 200;
    pollfd wake{.fd = signals_.fd(), .events = POLLIN, .revents = 0};
    poll(&wake, 1, kTickMilliseconds);
    while (const auto signal = signals_.next()) {
      if (*signal == SIGTSTP) {
        suspend();
      } else if (*signal != SIGCHLD) {
        signal_ = *signal;
      }
    }
    for (Slot& slot : slots_) {
      if (!slot.training) continue;
      if (const auto result = slot.training->result()) take(slot, *result);
    }
  }

  /// They are in process groups of their own: Ctrl-Z reaches them through us.
  void suspend() {
    for (Slot& slot : slots_) {
      if (slot.training) slot.training->signal(SIGSTOP);
    }
    kill(getpid(), SIGSTOP);
    for (Slot& slot : slots_) {
      if (slot.training) slot.training->signal(SIGCONT);
    }
  }

  void take(Slot& slot, const Result& result) {
    slot.training.reset();
    results_.append(result);
    samples_left_ -= slot.job.run->samples();
    ++(result.done() ? done_ : failed_);
    const std::string seconds = clock_time(seconds_since(slot.begin));
    if (!result.done()) {
      progress_.say(
          fmt::format("{}/{}  {}: failed after {}: {}", done_, total_, slot.job.label, seconds, result.failure));
      return;
    }
    note_speed(*slot.job.run, result);
    progress_.say(fmt::format("{}/{}  {}: {} {:.4f} in {}", done_, total_, slot.job.label, file_.metric,
                              result.metric(file_.metric), seconds));
  }

  std::string line() const {
    std::vector<std::string> labels;
    double elapsed = 0;
    for (const Slot& slot : slots_) {
      if (!slot.training) continue;
      labels.push_back(slot.job.label);
      elapsed += seconds_since(slot.begin);
    }
    std::string left;
    if (samples_timed_ > 0) {
      const double seconds = samples_left_ * seconds_timed_ / samples_timed_ - elapsed;
      left = fmt::format("about {} left; ", clock_time(std::max(0.0, seconds) / static_cast<double>(slots_.size())));
    }
    return fmt::format("{}/{} done{}; {}now {}", done_, total_, failed_ > 0 ? fmt::format(", {} failed", failed_) : "",
                       left, fmt::join(labels, " | "));
  }

  std::string all_runs() const { return plural(static_cast<std::int64_t>(total_), "run"); }

  const StudyFile& file_;
  const Plan& plan_;
  Results& results_;
  const std::filesystem::path folder_;
  const processes::SignalQueue signals_;
  Progress progress_;
  std::vector<Slot> slots_;
  std::set<std::string> begun_;  // keys, by this runner
  int signal_ = 0;               // that asked us to stop
  std::size_t total_ = 0;
  std::size_t done_ = 0;
  std::size_t failed_ = 0;
  double samples_left_ = 0;
  double samples_timed_ = 0;
  double seconds_timed_ = 0;
};

}  // namespace

int run_study(const StudyFile& file, const Plan& plan, Results& results, const RunnerOptions& options) {
  return Runner(file, plan, results, options).run();
}

}  // namespace co2::study
