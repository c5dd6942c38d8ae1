#include "train/image/image_batches.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "train/data/random.h"

namespace co2::train {
namespace {

constexpr int kBytes = 256;  // values of a byte

}  // namespace

Normalization normalization_of(const Images& images) {
  const std::int64_t channels = images.pixels.size(1), area = images.pixels.size(2) * images.pixels.size(3);
  // How often each value occurs: whole numbers, so that every machine gets the same.
  std::vector<std::int64_t> counts(static_cast<std::size_t>(channels * kBytes));
  const auto* pixel = images.pixels.const_data_ptr<std::uint8_t>();
  for (std::int64_t plane = 0; plane < images.count() * channels; ++plane) {
    auto* const count = counts.data() + plane % channels * kBytes;
    for (std::int64_t i = 0; i < area; ++i) ++count[*pixel++];
  }
  Normalization result;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    double sum = 0, squares = 0;
    for (int value = 0; value < kBytes; ++value) {
      const auto count = static_cast<double>(counts[static_cast<std::size_t>(channel * kBytes + value)]);
      sum += count * value / 255;
      squares += count * value / 255 * value / 255;
    }
    const double all = static_cast<double>(images.count() * area);
    result.mean.push_back(sum / all);
    const double variance = squares / all - result.mean.back() * result.mean.back();
    result.deviation.push_back(std::max(std::sqrt(std::max(variance, 0.0)), 1.0 / 255));  // of one colour: not by zero
  }
  return result;
}

ImageBatches::ImageBatches(const ImageSet& set, const Augmentation& augmentation, std::uint64_t seed)
    : set_(set),
      augmentation_(augmentation),
      seed_(seed),
      epochs_(set.training.count(), seed),
      normalization_(normalization_of(set.training)) {
  for (std::size_t channel = 0; channel < normalization_.mean.size(); ++channel) {
    for (int value = 0; value < kBytes; ++value) {
      values_.push_back(
          static_cast<float>((value / 255.0 - normalization_.mean[channel]) / normalization_.deviation[channel]));
    }
  }
}

ImageBatches::Change ImageBatches::change_at(std::int64_t place) const {
  constexpr std::uint64_t kPurpose = 1;  // other draws than those of the order
  std::uint64_t number = mixed({seed_, static_cast<std::uint64_t>(place), kPurpose, kPurpose});
  const auto below = [&](int limit) {
    const auto drawn = static_cast<int>(number % static_cast<std::uint64_t>(limit));
    number /= static_cast<std::uint64_t>(limit);
    return drawn;
  };
  const int reach = augmentation_.shift;
  return {.down = below(2 * reach + 1) - reach,
          .right = below(2 * reach + 1) - reach,
          .flip = augmentation_.flip && below(2) == 1};
}

ImageBatch ImageBatches::empty_batch(std::int64_t samples) const {
  const auto& pixels = set_.training.pixels;
  return {at::empty({samples, pixels.size(2), pixels.size(3), pixels.size(1)}), at::empty({samples}, at::kLong)};
}

ImageBatch ImageBatches::training(std::int64_t place, int samples) {
  ImageBatch batch = empty_batch(samples);
  for (int i = 0; i < samples; ++i) {
    put(set_.training, epochs_.at(place + i), change_at(place + i), batch, i);
  }
  batch.images = batch.images.permute({0, 3, 1, 2});
  return batch;
}

ImageBatch ImageBatches::validation(const std::vector<std::int64_t>& samples) const {
  ImageBatch batch = empty_batch(std::ssize(samples));
  for (std::int64_t i = 0; i < std::ssize(samples); ++i) {
    put(set_.validation, samples[static_cast<std::size_t>(i)], {}, batch, i);
  }
  batch.images = batch.images.permute({0, 3, 1, 2});
  return batch;
}

void ImageBatches::put(const Images& from, std::int64_t sample, const Change& change, const ImageBatch& into,
                       std::int64_t at) const {
  const std::int64_t channels = from.pixels.size(1), height = from.pixels.size(2), width = from.pixels.size(3);
  into.labels.data_ptr<std::int64_t>()[at] = from.labels.const_data_ptr<std::int64_t>()[sample];
  const auto* const planes = from.pixels.const_data_ptr<std::uint8_t>() + sample * channels * height * width;
  auto* out = into.images.data_ptr<float>() + at * channels * height * width;
  for (std::int64_t y = 0; y < height; ++y) {
    const std::int64_t row = y - change.down;
    for (std::int64_t x = 0; x < width; ++x) {
      const std::int64_t shifted = x - change.right;
      const std::int64_t column = change.flip ? width - 1 - shifted : shifted;
      const bool inside = row >= 0 && row < height && column >= 0 && column < width;
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        const int value = inside ? planes[(channel * height + row) * width + column] : 0;
        *out++ = values_[static_cast<std::size_t>(channel * kBytes + value)];
      }
    }
  }
}

}  // namespace co2::train
