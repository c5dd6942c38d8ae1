#include "train/image/synthetic_images.h"

#include <torch/torch.h>

#include <array>

#include "train/data/random.h"
#include "train/sha256.h"

namespace co2::train {
namespace {

constexpr int kSide = 28;
constexpr int kTraining = 2000;
constexpr int kValidation = 500;

/// One period of a wave in whole numbers: a sine may round differently on another machine.
constexpr int wave(int phase) {
  const int there = ((phase % 256) + 256) % 256;
  return there < 128 ? there : 255 - there;  // 0..127
}

Images drawn(int count, std::uint64_t part) {
  // Directions as whole numbers, of about the same length: ten of them in half a turn.
  constexpr std::array<std::array<int, 2>, 10> kDirections = {
      {{40, 0}, {38, 12}, {32, 24}, {24, 32}, {12, 38}, {0, 40}, {-12, 38}, {-24, 32}, {-32, 24}, {-38, 12}}};
  Images images{at::empty({count, 1, kSide, kSide}, at::kByte), at::empty({count}, at::kLong)};
  auto* pixel = images.pixels.data_ptr<std::uint8_t>();
  for (int i = 0; i < count; ++i) {
    const int label = i % kSyntheticFormat.classes;
    const auto [across, down] = kDirections[static_cast<std::size_t>(label)];
    const auto number = static_cast<std::uint64_t>(i);
    const int phase = static_cast<int>(mixed({part, number}) % 256);
    images.labels.data_ptr<std::int64_t>()[i] = label;
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        const int noise = static_cast<int>(mixed({part, number, static_cast<std::uint64_t>(y * kSide + x)}) % 128);
        *pixel++ = static_cast<std::uint8_t>(wave(phase + across * x + down * y) + noise);
      }
    }
  }
  return images;
}

}  // namespace

ImageSet synthetic_images() {
  ImageSet set{.name = "synthetic",
               .sha256 = {},
               .training = drawn(kTraining, 0),
               .validation = drawn(kValidation, 1),
               .classes = {},
               .mirrors = false};
  for (int i = 0; i < kSyntheticFormat.classes; ++i) set.classes.push_back(std::to_string(18 * i) + " degrees");
  const auto& pixels = set.training.pixels;
  set.sha256 = sha256({static_cast<const char*>(pixels.const_data_ptr()), pixels.nbytes()});
  return set;
}

}  // namespace co2::train
