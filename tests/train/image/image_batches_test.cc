#include "train/image/image_batches.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <tuple>

#include "train/image/synthetic_images.h"

namespace co2::train {
namespace {

ImageSet random_set(int channels, int side) {
  torch::manual_seed(1);
  ImageSet set{.name = "random", .sha256 = {}, .training = {}, .validation = {}, .classes = {"a", "b"}};
  for (Images* part : {&set.training, &set.validation}) {
    // Never black, so that what comes in at the border is told apart.
    part->pixels = torch::randint(1, 256, {30, channels, side, side}, torch::kByte);
    part->labels = torch::randint(0, 2, {30}, torch::kLong);
  }
  return set;
}

/// Back to bytes.
at::Tensor bytes(const at::Tensor& images, const Normalization& normalization) {
  const auto shape = std::vector<std::int64_t>{1, -1, 1, 1};
  const auto mean = torch::tensor(normalization.mean).view(shape);
  const auto deviation = torch::tensor(normalization.deviation).view(shape);
  return ((images * deviation + mean) * 255).round().to(torch::kByte);
}

at::Tensor shifted(const at::Tensor& image, int down, int right) {
  const auto height = image.size(1), width = image.size(2);
  const auto padded = torch::constant_pad_nd(image, {8, 8, 8, 8}, 0);
  return padded.narrow(1, 8 - down, height).narrow(2, 8 - right, width);
}

TEST(ImageBatches, AreNormalizedAndHaveChannelsLastInMemory) {
  const ImageSet set = random_set(3, 12);
  ImageBatches batches(set, {}, 1);
  const auto batch = batches.training(0, 30);
  EXPECT_EQ(batch.images.sizes(), (std::vector<std::int64_t>{30, 3, 12, 12}));
  EXPECT_EQ(batch.images.stride(1), 1);
  for (int channel = 0; channel < 3; ++channel) {
    EXPECT_NEAR(batch.images.select(1, channel).mean().item<double>(), 0, 1e-5);
    EXPECT_NEAR(batch.images.select(1, channel).std(false).item<double>(), 1, 1e-5);
  }
}

TEST(ImageBatches, AreTheImagesOfTheEpochWithTheirLabels) {
  const ImageSet set = random_set(3, 12);
  ImageBatches batches(set, {}, 7);
  Epochs epochs(30, 7);
  const auto batch = batches.training(25, 10);  // beyond the end of the first epoch
  const auto restored = bytes(batch.images, batches.normalization());
  for (int i = 0; i < 10; ++i) {
    const auto sample = epochs.at(25 + i);
    EXPECT_TRUE(torch::equal(restored[i], set.training.pixels[sample])) << i;
    EXPECT_EQ(batch.labels[i].item<std::int64_t>(), set.training.labels[sample].item<std::int64_t>());
  }
  const auto validation = batches.validation({3, 29});
  EXPECT_TRUE(torch::equal(bytes(validation.images, batches.normalization())[1], set.validation.pixels[29]));
}

TEST(ImageBatches, AreShiftedAndFlippedAsFarAsAsked) {
  const ImageSet set = random_set(1, 12);
  for (const bool flip : {false, true}) {
    ImageBatches batches(set, {.shift = 2, .flip = flip}, 7);
    Epochs epochs(30, 7);
    std::set<std::tuple<int, int, bool>> changes;
    const auto restored = bytes(batches.training(0, 300).images, batches.normalization());
    for (int i = 0; i < 300; ++i) {
      const auto original = set.training.pixels[epochs.at(i)];
      int matches = 0;
      for (const bool mirrored : {false, true}) {
        const auto image = mirrored ? original.flip(2) : original;
        for (int down = -3; down <= 3; ++down) {
          for (int right = -3; right <= 3; ++right) {
            if (!torch::equal(restored[i], shifted(image, down, right))) continue;
            ++matches;
            changes.insert({down, right, mirrored});
          }
        }
      }
      ASSERT_EQ(matches, 1) << i;
    }
    EXPECT_EQ(changes.size(), flip ? 50u : 25u);  // each of them, and none beyond
  }
}

TEST(ImageBatches, DependOnTheirPlaceAndTheSeedOnly) {
  const ImageSet set = synthetic_images();
  const Augmentation changes = {.shift = 4, .flip = true};
  ImageBatches one(set, changes, 3), other(set, changes, 3), seed(set, changes, 4);
  const auto whole = one.training(100, 8);
  other.training(5000, 3);
  EXPECT_TRUE(torch::equal(other.training(104, 4).images, whole.images.narrow(0, 4, 4)));
  EXPECT_FALSE(torch::equal(seed.training(100, 8).images, whole.images));
}

TEST(ImageBatches, ImagesOfOneColourAreNotDividedByZero) {
  ImageSet set = random_set(1, 4);
  set.training.pixels.fill_(9);
  ImageBatches batches(set, {}, 1);
  EXPECT_TRUE(torch::isfinite(batches.training(0, 4).images).all().item<bool>());
}

}  // namespace
}  // namespace co2::train
