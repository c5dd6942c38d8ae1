#pragma once

#include "train/image/images.h"

namespace co2::train {

constexpr ImageFormat kSyntheticFormat = {.channels = 1, .classes = 10};

/// Waves in ten directions, with noise: 28 by 28 pixels, 2,000 for training and 500 for validation. The same on every
/// machine, and nothing to fetch.
ImageSet synthetic_images();

}  // namespace co2::train
