#include "train/gpt/gpt_task.h"

#include <torch/torch.h>

#include <algorithm>

#include "sync/visiting.h"
#include "train/checkpoint_weights.h"
#include "train/config.h"
#include "train/data/corpus.h"
#include "train/data/windows.h"
#include "train/gpt/gpt.h"
#include "train/gpt/gpt_export.h"
#include "train/gpt/gpt_import.h"
#include "train/gpt/gpt_options.h"
#include "train/task.h"

namespace co2::train {
namespace {

constexpr double kSampleTemperature = 0.8;

/// Control characters other than line ends and tabs, and bytes that are no UTF-8, would garble a terminal or a JSON
/// file; a byte-level model may well write some.
std::string printable(const std::string& text) {
  std::string result;
  for (const unsigned char byte : text) {
    const bool plain = (byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\t';
    result += plain ? static_cast<char>(byte) : '?';
  }
  return result;
}

const GptOptions& own(const TrainConfig& config) { return task_options<GptOptions>(config); }

class GptTask : public Task {
 public:
  GptTask(const TrainConfig& config, const TaskContext& context)
      : config_(config),
        rank_(context.rank),
        say_(context.say),
        model_(std::make_shared<Gpt>(gpt_config(config))),
        values_(gpt_values(model_->config(), config.seed)),
        windows_(load_corpus(own(config).corpus, {context.agree, context.rank == 0, context.say, context.cancelled}),
                 own(config).validation_share, model_->config().context),
        validation_(windows_.validation(config.eval_batches, config.batch, context.rank, context.size)) {
    if (config.sync.zero < 3) return;
    const auto most = windows_.validation(config.eval_batches, config.batch, 0, context.size);
    passes_ = most.size();
    filler_ = most.front();
  }

  torch::nn::Module& model() override { return *model_; }

  at::Tensor next_loss() override {
    const auto batch = windows_.training(config_.seed, rank_, draw_++, config_.batch);
    return model_->loss(batch.tokens, batch.targets);
  }

  Validation validate() override {
    Validation result;
    // At ZeRO 3 forward is a collective: who has fewer batches joins with one that does not count.
    for (std::size_t i = validation_.size(); i < passes_; ++i) model_->loss(filler_.tokens, filler_.targets);
    for (const auto& batch : validation_) {
      const auto count = static_cast<double>(batch.tokens.numel());
      result.loss_sum += count * model_->loss(batch.tokens, batch.targets).item<double>();
      result.count += count;
    }
    return result;
  }

  FirstValues first_values() override { return values_; }

  void export_model(const std::filesystem::path& folder, const ShowParameters& show) override {
    export_gpt(*model_, show, folder);
  }

  void import_model(const std::filesystem::path& folder) override { values_ = gpt_weights(*model_, folder); }

  std::string sample(const std::filesystem::path&) override {
    const int length = sample_length();
    if (length == 0) return "";
    const auto text = sample_text(*model_, "\n", length, kSampleTemperature, config_.seed);
    if (!text && rank_ == 0) say_(kNoSample);
    return text ? printable(*text) : "";
  }

  DataDescription data() const override {
    const auto& corpus = windows_.corpus();
    return {corpus.name, corpus.sha256, static_cast<std::int64_t>(corpus.text.size())};
  }

  void visit(StateVisitor& visitor) override { visit_counter(visitor, "draw", draw_); }

 private:
  /// At ZeRO 3 every byte takes a forward pass that gathers the whole model.
  int sample_length() const {
    constexpr std::int64_t kMostGathered = std::int64_t{2} << 30;
    const int asked = own(config_).sample_bytes;
    if (config_.sync.zero < 3) return asked;
    const std::int64_t bytes = parameter_count(model_->config()) * static_cast<std::int64_t>(sizeof(float));
    return static_cast<int>(std::min<std::int64_t>(asked, kMostGathered / bytes));
  }

  TrainConfig config_;
  int rank_;
  std::function<void(const std::string&)> say_;
  std::shared_ptr<Gpt> model_;
  FirstValues values_;
  Windows windows_;
  std::vector<Batch> validation_;
  std::size_t passes_ = 0;
  Batch filler_;
  std::int64_t draw_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_gpt_task(const TrainConfig& config, const TaskContext& context) {
  return std::make_unique<GptTask>(config, context);
}

void export_gpt_weights(const TrainConfig& config, const CheckpointWeights& weights,
                        const std::filesystem::path& folder) {
  const Gpt model(gpt_config(config));
  const auto show = [&](const ParameterVisitor& visitor) {
    for (const auto& parameter : model.named_parameters()) {
      const at::Tensor& like = parameter.value();
      visitor(parameter.key(), weights.read(parameter.key(), like.numel()).view(like.sizes()));
    }
  };
  export_gpt(model, show, folder);
}

}  // namespace co2::train
