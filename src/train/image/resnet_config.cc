#include "train/image/resnet_config.h"

#include <algorithm>

#include "base/closest_name.h"
#include "train/validate.h"

namespace co2::train {

const std::vector<ResNetPreset>& resnet_presets() {
  // SGD's: the rate of He et al.
  static const std::vector<ResNetPreset> presets = {
      {"resnet-8", 1, 0.1, 2e-3},
      {"resnet-20", 3, 0.1, 1e-3},
  };
  return presets;
}

ResNetConfig resnet_preset(std::string_view name, const ImageFormat& images) {
  const auto& presets = resnet_presets();
  const auto found = std::ranges::find(presets, name, &ResNetPreset::name);
  if (found == presets.end()) throw unknown_choice("model", name, names_of(presets, &ResNetPreset::name));
  return {.blocks = found->blocks, .images = images};
}

ModelShape resnet_shape(const ResNetConfig& config) {
  ModelShape shape;
  const auto convolution = [&](std::int64_t in, std::int64_t out, int side, std::optional<std::size_t> unit) {
    shape.parameters.push_back({in * out * side * side, unit});
    shape.parameters.push_back({out, unit});  // of the norm that follows it
    shape.parameters.push_back({out, unit});
  };
  convolution(config.images.channels, config.widths[0], 3, {});
  int in = config.widths[0];
  std::size_t unit = 0;
  for (const int width : config.widths) {
    for (int block = 0; block < config.blocks; ++block, ++unit) {
      convolution(in, width, 3, unit);
      convolution(width, width, 3, unit);
      if (in != width) convolution(in, width, 1, unit);
      in = width;
    }
  }
  shape.parameters.push_back({std::int64_t{in} * config.images.classes, {}});
  shape.parameters.push_back({config.images.classes, {}});
  return shape;
}

}  // namespace co2::train
