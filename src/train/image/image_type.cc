#include "train/image/image_type.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/human.h"
#include "train/image/image_options.h"
#include "train/image/image_sets.h"
#include "train/image/image_task.h"
#include "train/image/resnet_config.h"
#include "train/option_makers.h"
#include "train/task.h"
#include "train/validate.h"

namespace co2::train {
namespace {

const std::vector<std::string>& augmentations() {
  static const std::vector<std::string> names = {"auto", "none", "shift", "shift-flip"};
  return names;
}

std::vector<Preset> presets() {
  std::vector<Preset> result;
  for (const ResNetPreset& each : resnet_presets()) {
    const auto elements = resnet_shape(resnet_preset(each.name, {})).elements();
    result.push_back(
        {.name = std::string(each.name),
         .about = fmt::format("{} parameters: 3 stages of {} block{}, 16, 32 and 64 channels",
                              human_count(static_cast<double>(elements)), each.blocks, each.blocks == 1 ? "" : "s"),
         .adam_rate = each.adam_rate,
         .sgd_rate = each.sgd_rate});
  }
  return result;
}

std::vector<TrainOption> options() {
  std::vector<TrainOption> result;
  result.push_back(option::text("images",
                                "fashion-mnist, cifar-10, mnist, synthetic, or a path: a folder with files of MNIST's "
                                "or CIFAR-10's form, or a safetensors file (docs/data.md)",
                                CO2_TASK_FIELD(ImageOptions, images)));
  result.back().shapes_model = true;
  result.back().in_doctor = "synthetic";  // there is nothing to learn there, and nothing to fetch
  result.push_back(option::one_of("augment", augmentations(),
                                  "How images are changed at random: shifted by up to 4 pixels, and mirrored; auto: "
                                  "both, but no mirror images of digits and of your own",
                                  CO2_TASK_FIELD(ImageOptions, augment)));
  return result;
}

/// What residual networks are usually trained with: He et al. 2016, but for the batch.
void set_defaults(TrainConfig& config) {
  config.optimizer = "sgd";
  config.weight_decay = 5e-4;
  config.gradient_clip = 0;
  config.batch = 32;
  config.eval_batches = 0;
  config.eval_every = 200;
}

void settle(TrainConfig& config) {
  const ImageOptions& own = task_options<ImageOptions>(config);
  if (std::ranges::find(augmentations(), own.augment) == augmentations().end()) {
    throw unknown_choice("augment", own.augment, augmentations());
  }
  resnet_preset(config.model, {});
}

DataContext data_context(const TaskContext& context) {
  return {context.agree, context.rank == 0, context.say, context.cancelled};
}

}  // namespace

TaskType image_type() {
  return {
      .name = "image",
      .summary = "a ResNet that tells small images apart",
      .sample = "an image",
      .example = "co2 train image --images cifar-10 --model resnet-20",
      .words = {.unit = "images",
                .data = "images",
                .metrics = {"accuracy"},
                .sample_title = "Recognised, of the validation images that worker 0 looked at:"},
      .presets = presets(),
      .options = options,
      .set_defaults = set_defaults,
      .settle = settle,
      .units_per_sample = [](const TrainConfig&) { return std::int64_t{1}; },
      .shape =
          [](const TrainConfig& config) {
            return resnet_shape(
                resnet_preset(model_of(config), image_format(task_options<ImageOptions>(config).images)));
          },
      .check_data = [](const TrainConfig& config) { check_images(task_options<ImageOptions>(config).images); },
      .fetch_data =
          [](TrainConfig& config, const TaskContext& context) {
            load_images(task_options<ImageOptions>(config).images, data_context(context));
          },
      .make = make_image_task,
      .export_weights = export_image_weights,
      .data_sets = packaged_images,
  };
}

}  // namespace co2::train
