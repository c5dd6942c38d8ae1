#include <torch/torch.h>

#include <fstream>

#include "island/memory_plan.h"
#include "train/gpt/gpt_type.h"
#include "train/option_makers.h"
#include "train/task.h"
#include "train/validate.h"

// A task that has nothing in common with text, and the table with it: it takes the place of src/train/task_types.cc.

namespace co2::train {
namespace {

constexpr int kClasses = 10;

struct ImageOptions {
  int pixels = 0;  ///< of each side; 0: the preset's own
  bool flip = true;
  std::string corpus = "photos";  ///< gpt has a flag of that name too
};

int pixels_of(const TrainConfig& config) {
  const int asked = task_options<ImageOptions>(config).pixels;
  return asked > 0 ? asked : model_of(config) == "coarse" ? 4 : 8;
}

class ImageTask : public Task {
 public:
  explicit ImageTask(const TrainConfig& config)
      : batch_(config.batch), inputs_(pixels_of(config) * pixels_of(config)), model_(inputs_, kClasses) {}

  torch::nn::Module& model() override { return *model_; }
  at::Tensor next_loss() override {
    const auto images = torch::ones({batch_, inputs_});
    return torch::cross_entropy_loss(model_->forward(images), torch::zeros({batch_}, torch::kLong));
  }
  Validation validate() override {
    const double count = batch_;
    return {.loss_sum = count * next_loss().item<double>(), .count = count, .metrics = {0.25 * count}};
  }
  void export_model(const std::filesystem::path& folder, const ShowParameters& show) override {
    std::ofstream file(folder / "classes");
    show([&](const std::string& name, const at::Tensor& values) { file << name << " " << values.numel() << "\n"; });
  }
  void import_model(const std::filesystem::path&) override { throw DataError("photos come without weights"); }
  std::string sample(const std::filesystem::path&) override { return "a cat"; }
  DataDescription data() const override { return {"photos", "abc", 1'000'000}; }
  void visit(StateVisitor&) override {}

 private:
  int batch_;
  int inputs_;
  torch::nn::Linear model_;
};

std::vector<TrainOption> options() {
  std::vector<TrainOption> result;
  result.push_back(
      option::whole("pixels", 0, 64, "Width and height; 0: the model's own", CO2_TASK_FIELD(ImageOptions, pixels)));
  result.back().shapes_model = true;
  result.push_back(option::yes_no("flip", "Mirror some of them", CO2_TASK_FIELD(ImageOptions, flip)));
  result.back().in_lab = false;
  result.push_back(option::text("corpus", "Which photos", CO2_TASK_FIELD(ImageOptions, corpus)));
  return result;
}

TaskType images_type() {
  return {
      .name = "images",
      .summary = "tells photos apart",
      .sample = "a photo",
      .example = "co2 train images --pixels 6",
      .words = {.unit = "images", .loss = "surprise", .data = "album", .metrics = {"calm"}, .sample_title = "It sees:"},
      .presets = {{"coarse", "4 by 4 pixels"}, {"fine", "8 by 8 pixels"}},
      .options = options,
      .set_defaults = [](TrainConfig& config) { config.optimizer = "sgd"; },
      .settle = [](TrainConfig& config) { task_options<ImageOptions>(config).pixels = pixels_of(config); },
      .units_per_sample = [](const TrainConfig&) { return std::int64_t{1}; },
      .shape =
          [](const TrainConfig& config) {
            const std::int64_t inputs = pixels_of(config) * pixels_of(config);
            return ModelShape{{{kClasses * inputs}, {kClasses}}};
          },
      .check_data =
          [](const TrainConfig& config) {
            if (task_options<ImageOptions>(config).corpus != "photos") throw DataError("there are only photos");
          },
      .fetch_data = [](TrainConfig&, const TaskContext& context) { context.say("the photos are here"); },
      .make = [](const TrainConfig& config, const TaskContext&) -> std::unique_ptr<Task> {
        torch::manual_seed(config.seed);
        return std::make_unique<ImageTask>(config);
      },
  };
}

}  // namespace

const std::vector<TaskType>& task_types() {
  static const std::vector<TaskType> types = {gpt_type(), images_type()};
  return types;
}

}  // namespace co2::train
