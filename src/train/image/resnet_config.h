#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "island/memory_plan.h"
#include "train/image/images.h"

namespace co2::train {

/// Shape of a residual network for small pictures (He et al. 2016, section 4.2): a convolution of 3 by 3, three stages
/// of blocks of two such convolutions, of which the second and third begin by halving height and width, the mean over
/// what is left, and a linear layer. 6 n + 2 layers with n blocks in a stage.
struct ResNetConfig {
  int blocks = 1;                            ///< in each stage
  std::array<int, 3> widths = {16, 32, 64};  ///< channels in each stage
  ImageFormat images;
};

/// A size in which it comes, and the rates that it trains well with.
struct ResNetPreset {
  std::string_view name;
  int blocks;
  double sgd_rate;
  double adam_rate;
};
const std::vector<ResNetPreset>& resnet_presets();

/// Throws OptionError with the closest name.
ResNetConfig resnet_preset(std::string_view name, const ImageFormat& images);

/// Its parameters without making one.
ModelShape resnet_shape(const ResNetConfig& config);

}  // namespace co2::train
