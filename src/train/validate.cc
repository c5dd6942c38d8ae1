#include "train/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "sync/closest_name.h"
#include "train/config.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/task.h"

namespace co2::train {
namespace {

/// Written so that NaN is outside of every range.
void within(const char* option, double value, double low, double high, bool low_allowed = true) {
  if ((low_allowed ? value >= low : value > low) && value <= high) return;
  throw OptionError(fmt::format("{} is {}; it must be {} {} and at most {}", option, value,
                                low_allowed ? "at least" : "above", low, high));
}

void one_of(const char* option, const std::string& value, const std::vector<std::string>& valid) {
  if (std::ranges::find(valid, value) == valid.end()) throw unknown_choice(option, value, valid);
}

}  // namespace

void validate(const TrainConfig& config) {
  one_of("task", config.task, task_names());
  one_of("optimizer", config.optimizer, optimizer_names());
  one_of("schedule", config.schedule, RateSchedule::shapes());
  within("context", config.context, 0, 1 << 20);
  within("batch", config.batch, 1, 1 << 20);
  within("validation_share", config.validation_share, 0, 0.9, false);
  within("eval_batches", config.eval_batches, 1, 1 << 20);
  within("learning_rate", config.learning_rate, 0, 1000, false);
  within("weight_decay", config.weight_decay, 0, 1000);
  within("beta1", config.beta1, 0, 1 - 1e-9);
  within("beta2", config.beta2, 0, 1 - 1e-9);
  within("gradient_clip", config.gradient_clip, 0, 1e9);
  within("warmup", config.warmup, 0, 1);
  within("final_rate", config.final_rate, 0, 1);
  within("steps", static_cast<double>(config.steps), 1, 1e12);
  within("eval_every", static_cast<double>(config.eval_every), 0, 1e12);
  within("sample_bytes", config.sample_bytes, 0, 1 << 20);
  validate_task(config);
  resolve(config.sync);
}

OptionError unknown_choice(std::string_view option, std::string_view value, const std::vector<std::string>& valid) {
  return OptionError(fmt::format("{} '{}' is not known{} Allowed: {}", option, value, did_you_mean(value, valid),
                                 fmt::join(valid, ", ")));
}

}  // namespace co2::train
