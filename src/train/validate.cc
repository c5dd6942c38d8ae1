#include "train/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/closest_name.h"
#include "options/recipe.h"
#include "train/config.h"
#include "train/every.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/task_type.h"

namespace co2::train {

// Written so that NaN is outside of every range.
void within(const char* option, double value, double low, double high) {
  if (value >= low && value <= high) return;
  throw OptionError(fmt::format("{} is {}; it must be at least {} and at most {}", option, value, low, high));
}

void above_zero(const char* option, double value, double high) {
  if (value > 0 && value <= high) return;
  throw OptionError(fmt::format("{} is {}; it must be above 0 and at most {}", option, value, high));
}

namespace {

void below_one(const char* option, double value) {
  if (value >= 0 && value < 1) return;
  throw OptionError(fmt::format("{} is {}; it must be at least 0 and below 1", option, value));
}

void one_of(const char* option, const std::string& value, const std::vector<std::string>& valid) {
  if (std::ranges::find(valid, value) == valid.end()) throw unknown_choice(option, value, valid);
}

}  // namespace

void validate(const TrainConfig& config) {
  one_of("task", config.task, task_names());
  one_of("optimizer", config.optimizer, optimizer_names());
  one_of("schedule", config.schedule, RateSchedule::shapes());
  within("batch", config.batch, 1, Highest::kBatch);
  within("eval_batches", config.eval_batches, 0, Highest::kEvalBatches);
  within("learning_rate", config.learning_rate, 0, Highest::kLearningRate);
  within("weight_decay", config.weight_decay, 0, Highest::kWeightDecay);
  below_one("beta1", config.beta1);
  below_one("beta2", config.beta2);
  within("gradient_clip", config.gradient_clip, 0, Highest::kGradientClip);
  within("warmup", config.warmup, 0, 1);
  within("final_rate", config.final_rate, 0, 1);
  within("steps", static_cast<double>(config.steps), 1, Highest::kSteps);
  within("eval_every", static_cast<double>(config.eval_every), 0, Highest::kSteps);
  parse_every("checkpoint_every", config.checkpoint_every);
  within("keep", config.keep, 1, Highest::kKeep);
  settled(config);
  if (config.sync.agree_moments > 0 && !has_second_moments(config.optimizer)) {
    throw OptionError(
        fmt::format("agree_moments = {} has no meaning for the optimizer '{}', which has no second moments: use adamw "
                    "or adam, or leave it out",
                    config.sync.agree_moments, config.optimizer));
  }
  const Recipe recipe = resolve(config.sync);
  if (config.virtual_workers && recipe.adaptive) {
    throw OptionError(
        "virtual workers need a number of local steps: 'auto' follows the time that steps and exchanges take, which "
        "means nothing where workers take turns on the same cores. Set local_steps, to 12 for example");
  }
}

OptionError unknown_choice(std::string_view option, std::string_view value, const std::vector<std::string>& valid) {
  return OptionError(fmt::format("{} '{}' is not known{} Allowed: {}", option, value, did_you_mean(value, valid),
                                 fmt::join(valid, ", ")));
}

}  // namespace co2::train
