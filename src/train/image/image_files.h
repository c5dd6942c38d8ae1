#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/image/images.h"

namespace co2::train {

/// A pair of IDX files, MNIST's own format: bytes of [count, height, width] or [count, height, width, channels], and
/// bytes of [count]. gzip unpacks what ends in .gz. Throws DataError that names the file.
Images read_idx(const std::filesystem::path& pixels, const std::filesystem::path& labels);

/// Files of CIFAR-10's binary form, one after the other: records of a label and three planes of 32 by 32 bytes.
Images read_cifar(const std::vector<std::filesystem::path>& files);

/// PNGs of which every row is a picture of `side` by `side` pixels in RGB, and a JSON array of their labels.
Images read_png_rows(const std::vector<std::filesystem::path>& files, const std::filesystem::path& labels, int side);

/// The one file that we keep of a data set, whoever made it: a safetensors file with the tensors train_images,
/// train_labels, validation_images and validation_labels (images uint8 [count, channels, height, width], labels int64),
/// and, as metadata, "classes" (a JSON array of names) and "mirrors" ("true" or "false"); these two may be missing.
void write_image_set(const std::filesystem::path& file, const ImageSet& set);
ImageSet read_image_set(const std::filesystem::path& file);

/// What somebody has brought: such a file, or a folder with the four files of MNIST (.gz or not) or with CIFAR-10's
/// binary ones (data_batch_*.bin, test_batch.bin, batches.meta.txt). Throws DataError that says what was looked for.
ImageSet read_images(const std::filesystem::path& path);

/// Throws DataError unless the two parts fit together and every label has a class.
void check(const ImageSet& set);

}  // namespace co2::train
