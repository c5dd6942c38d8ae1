#include "train/image/image_files.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/files.h"
#include "checkpoint/safetensors.h"
#include "train/data/package.h"
#include "train/image/png_file.h"
#include "train/sha256.h"

namespace co2::train {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;  // no set that is held in memory has more
constexpr std::int64_t kMostClasses = 100'000;

at::Tensor as_bytes(const std::string& text, std::size_t begin, at::IntArrayRef shape) {
  auto tensor = at::empty(shape, at::kByte);
  std::copy_n(text.data() + begin, tensor.numel(), reinterpret_cast<char*>(tensor.data_ptr<std::uint8_t>()));
  return tensor;
}

/// A zero, a zero, what elements are (8: bytes), the number of dimensions; each of them in four bytes, highest first.
at::Tensor read_idx_tensor(const fs::path& path) {
  const TemporaryFolder work(fs::temp_directory_path());
  const std::string text = read_unpacked(path, work.path());
  const auto byte = [&](std::size_t at) { return static_cast<std::int64_t>(static_cast<unsigned char>(text[at])); };
  const auto refuse = [&](const std::string& why) {
    throw DataError(fmt::format("{} is no IDX file of bytes: {}", path.string(), why));
  };
  if (text.size() < 4 || byte(0) != 0 || byte(1) != 0 || byte(2) != 8) refuse("it does not begin with 0, 0, 8");
  const std::int64_t dimensions = byte(3);
  const std::size_t header = 4 + 4 * static_cast<std::size_t>(dimensions);
  if (dimensions < 1 || dimensions > 4 || text.size() < header) refuse("it has no 1 to 4 dimensions");
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (std::size_t at = 4; at < header; at += 4) {
    shape.push_back(byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3));
    if (shape.back() == 0 || shape.back() > kMostBytes / elements) {
      refuse(fmt::format("a dimension is {}", shape.back()));
    }
    elements *= shape.back();
  }
  if (static_cast<std::int64_t>(text.size() - header) != elements) {
    refuse(fmt::format("it announces {} elements, and has {}", elements, text.size() - header));
  }
  return as_bytes(text, header, shape);
}

/// The one of these names that there is, with .gz or without.
std::optional<fs::path> find_file(const fs::path& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    for (const char* ending : {"", ".gz"}) {
      if (fs::exists(folder / (name + ending))) return folder / (name + ending);
    }
  }
  return std::nullopt;
}

/// MNIST's files have come with a dash and with a dot in their names.
std::optional<Images> find_idx(const fs::path& folder, const std::string& part) {
  const auto pixels = find_file(folder, {part + "-images-idx3-ubyte", part + "-images.idx3-ubyte"});
  const auto labels = find_file(folder, {part + "-labels-idx1-ubyte", part + "-labels.idx1-ubyte"});
  if (!pixels || !labels) return std::nullopt;
  return read_idx(*pixels, *labels);
}

std::vector<std::string> numbered_classes(const Images& images) {
  std::vector<std::string> names;
  if (images.labels.numel() == 0) return names;
  const std::int64_t highest = std::min(images.labels.max().item<std::int64_t>(), kMostClasses);
  for (std::int64_t i = 0; i <= highest; ++i) names.push_back(std::to_string(i));
  return names;
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) {
    std::erase(line, '\r');
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

std::optional<ImageSet> read_folder(const fs::path& folder) {
  ImageSet set;
  if (auto training = find_idx(folder, "train")) {
    auto validation = find_idx(folder, "t10k");
    if (!validation) return std::nullopt;
    set.training = std::move(*training);
    set.validation = std::move(*validation);
    set.classes = numbered_classes(set.training);
    return set;
  }
  std::vector<fs::path> batches;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("data_batch_") && name.ends_with(".bin")) batches.push_back(entry.path());
  }
  if (batches.empty() || !fs::exists(folder / "test_batch.bin")) return std::nullopt;
  std::ranges::sort(batches);
  set.training = read_cifar(batches);
  set.validation = read_cifar({folder / "test_batch.bin"});
  const auto names = folder / "batches.meta.txt";
  set.classes = fs::exists(names) ? lines_of(names) : numbered_classes(set.training);
  set.mirrors = true;
  return set;
}

std::string digest_of(const ImageSet& set) {
  std::string digests;
  for (const at::Tensor& tensor :
       {set.training.pixels, set.training.labels, set.validation.pixels, set.validation.labels}) {
    digests += sha256({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  return sha256(digests);
}

}  // namespace

Images read_idx(const fs::path& pixels, const fs::path& labels) {
  Images images{read_idx_tensor(pixels), read_idx_tensor(labels).to(at::kLong)};
  if (images.pixels.dim() == 3) images.pixels = images.pixels.unsqueeze(1);
  if (images.pixels.dim() != 4 || images.labels.dim() != 1) {
    throw DataError(fmt::format("{} has no pictures, or {} no labels: other dimensions are expected", pixels.string(),
                                labels.string()));
  }
  if (images.pixels.size(1) != 1) images.pixels = images.pixels.permute({0, 3, 1, 2}).contiguous();
  return images;
}

Images read_cifar(const std::vector<fs::path>& files) {
  constexpr std::int64_t kSide = 32;
  constexpr std::int64_t kRecord = 1 + 3 * kSide * kSide;
  std::vector<at::Tensor> records;
  for (const fs::path& path : files) {
    const std::string text = read_file(path);
    const auto size = static_cast<std::int64_t>(text.size());
    if (size == 0 || size % kRecord != 0) {
      throw DataError(
          fmt::format("{} is no file of CIFAR-10: its {} bytes are no multiple of {}", path.string(), size, kRecord));
    }
    records.push_back(as_bytes(text, 0, {size / kRecord, kRecord}));
  }
  const at::Tensor all = at::cat(records);
  return {all.narrow(1, 1, kRecord - 1).contiguous().view({-1, 3, kSide, kSide}), all.select(1, 0).to(at::kLong)};
}

Images read_png_rows(const std::vector<fs::path>& files, const fs::path& labels, int side) {
  std::vector<at::Tensor> parts;
  for (const fs::path& path : files) {
    const at::Tensor rows = read_png(path);  // [rows, side², 3]
    if (rows.size(1) != side * side) {
      throw DataError(fmt::format("{} is {} pixels wide, not {}", path.string(), rows.size(1), side * side));
    }
    parts.push_back(rows.view({-1, side, side, 3}).permute({0, 3, 1, 2}).contiguous());
  }
  const auto json = nlohmann::json::parse(read_file(labels), nullptr, /*allow_exceptions=*/false);
  const auto whole = [](const nlohmann::json& each) { return each.is_number_integer(); };
  if (!json.is_array() || !std::ranges::all_of(json, whole)) {
    throw DataError(fmt::format("{} is no JSON array of whole numbers", labels.string()));
  }
  return {at::cat(parts), torch::tensor(json.get<std::vector<std::int64_t>>(), at::kLong)};
}

void write_image_set(const fs::path& file, const ImageSet& set) {
  checkpoint::Safetensors contents;
  contents.tensors = {{"train_images", set.training.pixels},
                      {"train_labels", set.training.labels},
                      {"validation_images", set.validation.pixels},
                      {"validation_labels", set.validation.labels}};
  contents.metadata = {{"classes", nlohmann::json(set.classes).dump()}, {"mirrors", set.mirrors ? "true" : "false"}};
  checkpoint::write_safetensors(file, contents);
}

ImageSet read_image_set(const fs::path& file) {
  const checkpoint::SafetensorsFile contents(file);
  ImageSet set;
  set.training = {contents.read("train_images"), contents.read("train_labels").to(at::kLong)};
  set.validation = {contents.read("validation_images"), contents.read("validation_labels").to(at::kLong)};
  const auto& metadata = contents.header().metadata;
  const auto text = [&](const char* key) { return metadata.contains(key) ? metadata.at(key) : std::string(); };
  set.mirrors = text("mirrors") == "true";
  const auto names = nlohmann::json::parse(text("classes"), nullptr, /*allow_exceptions=*/false);
  const auto is_text = [](const nlohmann::json& each) { return each.is_string(); };
  if (names.is_array() && std::ranges::all_of(names, is_text)) set.classes = names.get<std::vector<std::string>>();
  if (set.classes.empty()) set.classes = numbered_classes(set.training);
  set.name = file.string();
  check(set);
  return set;
}

ImageSet read_images(const fs::path& path) {
  std::optional<ImageSet> set;
  try {
    if (!fs::is_directory(path)) {
      set = read_image_set(path);
    } else if (!(set = read_folder(path))) {
      throw DataError(fmt::format(
          "the folder {} has neither MNIST's files (train-images-idx3-ubyte, train-labels-idx1-ubyte, "
          "t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, with .gz or without) nor CIFAR-10's (data_batch_1.bin, "
          "test_batch.bin)",
          path.string()));
    }
  } catch (const fs::filesystem_error& problem) {
    throw DataError(fmt::format("can't read the images in {}: {}", path.string(), problem.code().message()));
  }
  set->name = path.string();
  check(*set);
  set->sha256 = digest_of(*set);
  return std::move(*set);
}

void check(const ImageSet& set) {
  const auto refuse = [&](const std::string& why) {
    throw DataError(fmt::format("the images {} can't be used: {}", set.name, why));
  };
  if (set.classes.empty() || std::ssize(set.classes) > kMostClasses) {
    refuse(fmt::format("there are {} classes", set.classes.size()));
  }
  for (const auto& [part, images] : {std::pair{"training", &set.training}, {"validation", &set.validation}}) {
    const at::Tensor& pixels = images->pixels;
    const at::Tensor& labels = images->labels;
    if (pixels.scalar_type() != at::kByte || pixels.dim() != 4 || pixels.numel() == 0) {
      refuse(fmt::format("the {} images must be bytes of [count, channels, height, width]", part));
    }
    if (labels.scalar_type() != at::kLong || labels.dim() != 1 || labels.size(0) != pixels.size(0)) {
      refuse(fmt::format("there must be one label (int64) for each of the {} {} images", pixels.size(0), part));
    }
    if (pixels.sizes().slice(1) != set.training.pixels.sizes().slice(1)) {
      refuse("those for validation have another size than those for training");
    }
    const auto lowest = labels.min().item<std::int64_t>(), highest = labels.max().item<std::int64_t>();
    if (lowest < 0 || highest >= std::ssize(set.classes)) {
      refuse(fmt::format("a {} label is {}, and there are {} classes", part, lowest < 0 ? lowest : highest,
                         set.classes.size()));
    }
  }
}

}  // namespace co2::train
