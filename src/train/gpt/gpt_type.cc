#include "train/gpt/gpt_type.h"

#include <fmt/format.h>

#include "base/human.h"
#include "train/data/corpora.h"
#include "train/data/corpus.h"
#include "train/gpt/gpt_options.h"
#include "train/gpt/gpt_shape.h"
#include "train/gpt/gpt_task.h"
#include "train/option_makers.h"
#include "train/task.h"
#include "train/validate.h"

namespace co2::train {
namespace {

constexpr int kHighestContext = 65'536;
constexpr double kHighestShare = 0.5;
constexpr int kHighestBytes = 1'000'000;

std::vector<Preset> presets() {
  std::vector<Preset> result;
  for (const std::string& name : gpt_presets()) {
    const GptConfig config = gpt_preset(name);
    result.push_back({name,
                      fmt::format("{} parameters: {} layers of width {}, context {}",
                                  human_count(static_cast<double>(parameter_count(config))), config.layers,
                                  config.width, config.context),
                      gpt_learning_rate(name)});
  }
  return result;
}

std::vector<TrainOption> options() {
  std::vector<TrainOption> result;
  result.push_back(option::text("corpus",
                                "gutenberg, sotu, anarchism, gcide, synthetic, auto, or a path to a text file or a "
                                "folder of .txt files",
                                CO2_TASK_FIELD(GptOptions, corpus)));
  result.back().in_doctor = "synthetic";  // there is nothing to learn there, and nothing to fetch
  result.push_back(option::whole("context", 0, kHighestContext, "Tokens per sample; 0: the model's own",
                                 CO2_TASK_FIELD(GptOptions, context)));
  result.back().shapes_model = true;
  result.push_back(option::number("validation-share", 0, kHighestShare, option::Ends::kLowestOut,
                                  "Share of the corpus that is held out for validation",
                                  CO2_TASK_FIELD(GptOptions, validation_share)));
  result.push_back(option::whole("sample-bytes", 0, kHighestBytes,
                                 "Length of the text that the model writes at the end",
                                 CO2_TASK_FIELD(GptOptions, sample_bytes)));
  result.back().in_lab = 0;
  return result;
}

void settle(TrainConfig& config) {
  GptOptions& own = task_options<GptOptions>(config);
  within("context", own.context, 0, kHighestContext);
  above_zero("validation_share", own.validation_share, kHighestShare);
  within("sample_bytes", own.sample_bytes, 0, kHighestBytes);
  own.context = gpt_config(config).context;
}

void fetch_data(TrainConfig& config, const TaskContext& context) {
  GptOptions& own = task_options<GptOptions>(config);
  const Corpus corpus = load_corpus(own.corpus, {context.agree, context.rank == 0, context.say, context.cancelled});
  if (own.corpus == "auto") own.corpus = corpus.name;  // it would look for it once more, where there is no way out
}

}  // namespace

GptConfig gpt_config(const TrainConfig& config) {
  return gpt_preset(model_of(config), task_options<GptOptions>(config).context);
}

TaskType gpt_type() {
  return {
      .name = "gpt",
      .summary = "a GPT-2 that reads and writes bytes, small to xl in its own sizes",
      .sample = "a window of text",
      .example = "co2 train --corpus my_text.txt --model tiny",
      .words = {.unit = "tokens", .loss = "loss", .data = "corpus", .sample_title = "The model writes:"},
      .presets = presets(),
      .has_peers = true,
      .options = options,
      .settle = settle,
      .units_per_sample = [](const TrainConfig& config) { return std::int64_t{gpt_config(config).context}; },
      .shape = [](const TrainConfig& config) { return gpt_shape(gpt_config(config)); },
      .check_data = [](const TrainConfig& config) { check_corpus(task_options<GptOptions>(config).corpus); },
      .fetch_data = fetch_data,
      .make = make_gpt_task,
      .export_weights = export_gpt_weights,
      .data_sets = packaged_corpora,
  };
}

}  // namespace co2::train
