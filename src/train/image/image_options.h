#pragma once

#include <string>

namespace co2::train {

/// What only this task has in a TrainConfig; image_type.cc gives each field its flag, range and help.
struct ImageOptions {
  std::string images = "fashion-mnist";  ///< that, cifar-10, mnist, synthetic, or a path (read_images())
  std::string augment = "auto";          ///< none, shift, shift-flip; auto: what the images allow
};

}  // namespace co2::train
