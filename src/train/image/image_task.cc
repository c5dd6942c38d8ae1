#include "train/image/image_task.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "sync/visiting.h"
#include "train/checkpoint_weights.h"
#include "train/config.h"
#include "train/image/confusion.h"
#include "train/image/image_batches.h"
#include "train/image/image_options.h"
#include "train/image/image_sets.h"
#include "train/image/png_file.h"
#include "train/image/prediction_grid.h"
#include "train/image/resnet.h"
#include "train/image/resnet_export.h"
#include "train/task.h"

namespace co2::train {
namespace {

constexpr int kFarthestShift = 4;
constexpr int kGridColumns = 8;
constexpr int kGridRows = 5;

const ImageOptions& own(const TrainConfig& config) { return task_options<ImageOptions>(config); }

Augmentation augmentation_of(const TrainConfig& config, const ImageSet& set) {
  const std::string& wanted = own(config).augment;
  if (wanted == "none") return {};
  return {.shift = kFarthestShift, .flip = wanted == "shift-flip" || (wanted == "auto" && set.mirrors)};
}

ResNetConfig resnet_config(const TrainConfig& config, const ImageSet& set) {
  return resnet_preset(model_of(config), {.channels = static_cast<int>(set.training.pixels.size(1)),
                                          .classes = static_cast<int>(set.classes.size())});
}

class ImageTask : public Task {
 public:
  ImageTask(const TrainConfig& config, const TaskContext& context)
      : config_(config),
        rank_(context.rank),
        size_(context.size),
        say_(context.say),
        set_(load_images(own(config).images, {context.agree, context.rank == 0, context.say, context.cancelled})),
        batches_(set_, augmentation_of(config, set_), config.seed),
        model_(std::make_shared<ResNet>(resnet_config(config, set_), config.seed)),
        confusion_(set_.classes) {}

  torch::nn::Module& model() override { return *model_; }

  at::Tensor next_loss() override {
    model_->train();
    const auto batch = batches_.training(position_.take(rank_, size_, config_.batch), config_.batch);
    return loss(model_->forward(batch.images), batch.labels);
  }

  Validation validate() override {
    model_->eval();
    Validation result{.metrics = {0}};
    confusion_ = Confusion(set_.classes);
    const std::int64_t count = validation_count();
    const std::int64_t chunks = (count + config_.batch - 1) / config_.batch;
    // At ZeRO 3 forward is a collective: who has fewer batches joins with one that does not count.
    const std::int64_t passes = config_.sync.zero == 3 ? (chunks + size_ - 1) / size_ : 0;
    std::int64_t done = 0;
    for (std::int64_t chunk = rank_; chunk < chunks; chunk += size_, ++done) {
      const auto batch = validation_batch(chunk, count);
      const auto logits = model_->forward(batch.images);
      const auto samples = static_cast<double>(batch.labels.size(0));
      result.loss_sum += samples * loss(logits, batch.labels).item<double>();
      result.count += samples;
      const auto guesses = logits.argmax(1);
      const auto* const truth = batch.labels.const_data_ptr<std::int64_t>();
      const auto* const guess = guesses.const_data_ptr<std::int64_t>();
      for (std::int64_t i = 0; i < guesses.size(0); ++i) confusion_.add(truth[i], guess[i]);
    }
    for (; done < passes; ++done) model_->forward(validation_batch(0, count).images);
    // Without finite numbers the first class would always be the guess.
    result.metrics[0] = std::isfinite(result.loss_sum) ? static_cast<double>(confusion_.right()) : std::nan("");
    return result;
  }

  void export_model(const std::filesystem::path& folder, const ShowParameters& show) override {
    export_resnet(*model_, show, set_.classes, batches_.normalization(), folder);
  }

  void import_model(const std::filesystem::path& folder) override { import_resnet(*model_, folder); }

  std::string sample(const std::filesystem::path& folder) override {
    model_->eval();
    const at::NoGradGuard no_grad;
    const auto count = std::min<std::int64_t>(kGridColumns * kGridRows, set_.validation.count());
    std::vector<std::int64_t> chosen;
    for (std::int64_t i = 0; i < count; ++i) chosen.push_back(i * set_.validation.count() / count);
    const auto batch = batches_.validation(chosen);
    const auto logits = model_->forward(batch.images);
    if (folder.empty()) return "";
    if (!at::isfinite(logits).all().item<bool>()) {  // all would look like guesses of the first class
      say_(kNoSample);
      return "";
    }
    const auto guesses = logits.argmax(1);
    std::vector<Prediction> predictions;
    for (std::int64_t i = 0; i < count; ++i) {
      predictions.push_back(
          {set_.validation.pixels[chosen[static_cast<std::size_t>(i)]], name_of(batch.labels[i]), name_of(guesses[i])});
    }
    write_png(folder / "predictions.png", prediction_grid(predictions, kGridColumns));
    return confusion_.table();
  }

  DataDescription data() const override { return {set_.name, set_.sha256, set_.bytes()}; }

  void visit(StateVisitor& visitor) override { visit_counter(visitor, "place", position_.place); }

 private:
  /// Losses are compared in their fourth digit, which bfloat16 does not have.
  static at::Tensor loss(const at::Tensor& logits, const at::Tensor& labels) {
    return at::cross_entropy_loss(logits.to(at::kFloat), labels);
  }

  std::int64_t validation_count() const {
    const std::int64_t all = set_.validation.count();
    return config_.eval_batches == 0 ? all : std::min(all, std::int64_t{config_.eval_batches} * config_.batch);
  }

  /// Of `count` samples that are spread evenly over all.
  ImageBatch validation_batch(std::int64_t chunk, std::int64_t count) const {
    std::vector<std::int64_t> samples;
    for (std::int64_t i = chunk * config_.batch; i < std::min((chunk + 1) * config_.batch, count); ++i) {
      samples.push_back(i * set_.validation.count() / count);
    }
    return batches_.validation(samples);
  }

  const std::string& name_of(const at::Tensor& label) const {
    return set_.classes[static_cast<std::size_t>(label.item<std::int64_t>())];
  }

  TrainConfig config_;
  int rank_;
  int size_;
  std::function<void(const std::string&)> say_;
  ImageSet set_;
  ImageBatches batches_;
  std::shared_ptr<ResNet> model_;
  Confusion confusion_;  // of this worker's share of the last validation
  StreamPosition position_;
};

}  // namespace

std::unique_ptr<Task> make_image_task(const TrainConfig& config, const TaskContext& context) {
  return std::make_unique<ImageTask>(config, context);
}

void export_image_weights(const TrainConfig& config, const CheckpointWeights& weights,
                          const std::filesystem::path& folder) {
  const ImageSet set = load_images(own(config).images);
  const ResNet model(resnet_config(config, set), config.seed);
  for (const auto& buffer : model.named_buffers()) {
    at::Tensor statistic = buffer.value();
    statistic.copy_(weights.read_buffer(buffer.key()).view(statistic.sizes()));
  }
  const auto show = [&](const ParameterVisitor& visitor) {
    for (const auto& parameter : model.named_parameters()) {
      const at::Tensor& like = parameter.value();
      visitor(parameter.key(), weights.read(parameter.key(), like.numel()).view(like.sizes()));
    }
  };
  export_resnet(model, show, set.classes, normalization_of(set.training), folder);
}

}  // namespace co2::train
