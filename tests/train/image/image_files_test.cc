#include "train/image/image_files.h"

#include <co2/error.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>

#include "base/child_process.h"
#include "base/files.h"
#include "checkpoint/safetensors.h"
#include "support/temporary.h"
#include "train/data/subprocess.h"
#include "train/image/image_sets.h"
#include "train/image/png_file.h"

namespace co2::train {
namespace {

namespace fs = std::filesystem;

std::string text_of(const at::Tensor& bytes) {
  const auto values = bytes.contiguous();
  return {reinterpret_cast<const char*>(values.const_data_ptr<std::uint8_t>()), values.nbytes()};
}

std::string idx(const at::Tensor& bytes) {
  std::string text = {0, 0, 8, static_cast<char>(bytes.dim())};
  for (const std::int64_t size : bytes.sizes()) {
    for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(size >> shift & 255);
  }
  return text + text_of(bytes);
}

at::Tensor random_bytes(std::vector<std::int64_t> shape, int below = 256) {
  return torch::randint(0, below, shape, torch::kByte);
}

/// The four files of MNIST, of 300 and 20 small images: more than a byte can count.
void write_mnist(const fs::path& folder) {
  torch::manual_seed(2);
  for (const auto& [part, count] : {std::pair{"train", 300}, {"t10k", 20}}) {
    write_atomically(folder / (std::string(part) + "-images-idx3-ubyte"), idx(random_bytes({count, 5, 6})));
    write_atomically(folder / (std::string(part) + "-labels-idx1-ubyte"),
                     idx(torch::arange(count).remainder(10).to(torch::kByte)));
  }
}

std::string refusal(const fs::path& path) {
  return test::message_of<DataError>([&] { read_images(path); });
}

TEST(ImageFiles, MnistsAreRead) {
  const test::TestFolder folder;
  write_mnist(folder.path());
  const ImageSet set = read_images(folder.path());
  EXPECT_EQ(set.training.pixels.sizes(), (std::vector<std::int64_t>{300, 1, 5, 6}));
  EXPECT_EQ(set.validation.count(), 20);
  EXPECT_EQ(set.classes.size(), 10u);
  EXPECT_FALSE(set.mirrors);
  EXPECT_EQ(idx(set.training.pixels.squeeze(1)), read_file(folder / "train-images-idx3-ubyte"));
  EXPECT_EQ(set.training.labels[13].item<int>(), 3);
}

TEST(ImageFiles, ThatAreCompressedAreTheSame) {
  if (!have_program("gzip")) GTEST_SKIP() << "no gzip here";
  const test::TestFolder folder;
  write_mnist(folder.path());
  const std::string digest = read_images(folder.path()).sha256;
  for (const auto& name : {"train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    run_command({.arguments = {"gzip", name},
                 .folder = folder.path(),
                 .output = "/dev/null",
                 .log = folder / "log",
                 .timeout = std::chrono::seconds(60)});
  }
  EXPECT_FALSE(fs::exists(folder / "train-images-idx3-ubyte"));
  EXPECT_EQ(read_images(folder.path()).sha256, digest);
}

TEST(ImageFiles, CifarsAreReadInTheOrderOfTheirNames) {
  const test::TestFolder folder;
  at::Tensor second;
  for (const auto& name : {"data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"}) {
    const auto records = torch::cat({random_bytes({12, 1}, 3), random_bytes({12, 3072})}, 1);
    if (std::string(name) == "data_batch_2.bin") second = records;
    write_atomically(folder / name, text_of(records));
  }
  write_atomically(folder / "batches.meta.txt", "cat\r\ndog\nfrog\n\n");
  const ImageSet set = read_images(folder.path());
  EXPECT_EQ(set.training.pixels.sizes(), (std::vector<std::int64_t>{24, 3, 32, 32}));
  EXPECT_EQ(set.classes, (std::vector<std::string>{"cat", "dog", "frog"}));
  EXPECT_TRUE(set.mirrors);
  EXPECT_TRUE(torch::equal(set.training.pixels[14].view({-1}), second[2].narrow(0, 1, 3072)));
  EXPECT_EQ(set.training.labels[14].item<int>(), second[2][0].item<int>());
}

TEST(ImageFiles, RowsOfPngsAreImages) {
  const test::TestFolder folder;
  const auto picture = random_bytes({7, 16, 3});  // seven images of 4 by 4
  write_png(folder / "rows.png", picture);
  write_atomically(folder / "labels.json", "[0, 1, 2, 0, 1, 2, 1]");
  const Images images = read_png_rows({folder / "rows.png"}, folder / "labels.json", 4);
  EXPECT_EQ(images.pixels.sizes(), (std::vector<std::int64_t>{7, 3, 4, 4}));
  EXPECT_EQ(images.pixels[5][2][1][3].item<int>(), picture[5][1 * 4 + 3][2].item<int>());
  EXPECT_EQ(images.labels[6].item<int>(), 1);
  EXPECT_THROW(read_png_rows({folder / "rows.png"}, folder / "labels.json", 5), DataError);
  write_atomically(folder / "labels.json", "[0, 1.5]");
  EXPECT_THROW(read_png_rows({folder / "rows.png"}, folder / "labels.json", 4), DataError);
}

TEST(ImageFiles, PngsThatAreNoneAreRefusedByName) {
  const test::TestFolder folder;
  write_png(folder / "good.png", random_bytes({9, 9, 3}));
  const std::string good = read_file(folder / "good.png");
  for (const auto& text : {std::string("no picture"), good.substr(0, good.size() / 2), std::string()}) {
    write_atomically(folder / "bad.png", text);
    const auto message = test::message_of<DataError>([&] { read_png(folder / "bad.png"); });
    EXPECT_NE(message.find("bad.png"), std::string::npos) << message;
  }
}

TEST(ImageFiles, WhatWeKeepIsReadAsItWas) {
  const test::TestFolder folder;
  write_mnist(folder.path());
  ImageSet set = read_images(folder.path());
  set.classes[3] = "three \"quoted\"";
  set.mirrors = true;
  write_image_set(folder / "kept.safetensors", set);
  const ImageSet kept = read_images(folder / "kept.safetensors");
  EXPECT_EQ(kept.classes, set.classes);
  EXPECT_TRUE(kept.mirrors);
  EXPECT_EQ(kept.sha256, set.sha256);
  EXPECT_EQ(kept.name, (folder / "kept.safetensors").string());
}

TEST(ImageFiles, OthersMayLeaveOutNamesAndTakeSmallLabels) {
  const test::TestFolder folder;
  const auto images = random_bytes({6, 1, 4, 4});
  const auto labels = torch::tensor({0, 1, 2, 2, 1, 0}, torch::kInt);
  checkpoint::write_safetensors(folder / "own.safetensors", {{{"train_images", images},
                                                              {"train_labels", labels},
                                                              {"validation_images", images},
                                                              {"validation_labels", labels}},
                                                             {}});
  EXPECT_EQ(read_images(folder / "own.safetensors").classes, (std::vector<std::string>{"0", "1", "2"}));
}

TEST(ImageFiles, WhatIsWrongIsSaidWithTheFile) {
  const test::TestFolder folder;
  EXPECT_NE(refusal(folder.path()).find("neither MNIST's files"), std::string::npos);
  write_mnist(folder.path());
  const auto with = [&](const char* name, const std::string& text) {
    const std::string before = read_file(folder / name);
    write_atomically(folder / name, text);
    const auto message = refusal(folder.path());
    write_atomically(folder / name, before);
    return message;
  };
  const std::string images = read_file(folder / "train-images-idx3-ubyte");
  for (const auto& [text, expected] :
       {std::pair<std::string, const char*>{"", "does not begin with 0, 0, 8"},
        {images.substr(0, 7), "dimensions"},
        {images.substr(0, images.size() - 1), "it announces 9000 elements, and has 8999"},
        {std::string("\0\0\x0d\x03", 4) + images.substr(4), "does not begin with 0, 0, 8"},
        {std::string("\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16), "a dimension is"}}) {
    const auto message = with("train-images-idx3-ubyte", text);
    EXPECT_NE(message.find(expected), std::string::npos) << message;
    EXPECT_NE(message.find("train-images-idx3-ubyte"), std::string::npos) << message;
  }
  const auto few = with("t10k-labels-idx1-ubyte", idx(torch::zeros({19}, torch::kByte)));
  EXPECT_NE(few.find("one label (int64) for each of the 20 validation images"), std::string::npos) << few;
  const auto unknown = with("t10k-labels-idx1-ubyte", idx(torch::full({20}, 11, torch::kByte)));
  EXPECT_NE(unknown.find("a validation label is 11, and there are 10 classes"), std::string::npos) << unknown;
  const auto size = with("t10k-images-idx3-ubyte", idx(random_bytes({20, 6, 6})));
  EXPECT_NE(size.find("another size"), std::string::npos) << size;
  write_atomically(folder / "data", "no safetensors");
  EXPECT_NE(refusal(folder / "data").find("data"), std::string::npos);
  fs::create_directory(folder / "cifar");
  write_atomically(folder / "cifar/data_batch_1.bin", std::string(3072, 'x'));
  write_atomically(folder / "cifar/test_batch.bin", std::string(3073, 'x'));
  EXPECT_NE(refusal(folder / "cifar").find("no multiple of 3073"), std::string::npos);
}

TEST(ImageSets, NamesThatAreNoneGetTheClosest) {
  const auto message = test::message_of<DataError>([] { check_images("fashion-mist"); });
  EXPECT_NE(message.find("did you mean 'fashion-mnist'?"), std::string::npos) << message;
  EXPECT_NO_THROW(check_images("cifar-10"));
  EXPECT_EQ(image_format("cifar-10").channels, 3);
}

/// A package of the name that we know, with other images in it: all of the way but the network.
TEST(ImageSets, AreMadeFromAPackageThatSomebodyHasPlacedAndKept) {
  if (!have_program("dpkg-deb") || !have_program("gzip")) GTEST_SKIP() << "no dpkg-deb or gzip here";
  const test::TestFolder folder;
  const test::ScopedVariable data("CO2_DATA", (folder / "data").string());
  const auto tree = folder / "tree";
  const auto images = tree / "usr/share/datasets/fashion-mnist";
  fs::create_directories(images);
  fs::create_directories(tree / "DEBIAN");
  fs::create_directories(folder / "data");
  fs::permissions(tree / "DEBIAN", fs::perms(0755));
  write_atomically(tree / "DEBIAN/control",
                   "Package: dataset-fashion-mnist\nVersion: 1\nArchitecture: all\nMaintainer: nobody "
                   "<nobody@localhost>\nDescription: a test\n");
  write_mnist(images);
  const std::string digest = read_images(images).sha256;
  const auto run = [&](std::vector<std::string> arguments) {
    run_command({.arguments = std::move(arguments),
                 .folder = folder.path(),
                 .output = "/dev/null",
                 .log = folder / "log",
                 .timeout = std::chrono::seconds(60)});
  };
  run({"gzip", "-r", images.string()});
  run({"dpkg-deb", "--root-owner-group", "--build", tree.string(),
       (folder / "data/dataset-fashion-mnist_1_all.deb").string()});
  std::vector<std::string> said;
  DataContext context;
  context.say = [&](const std::string& line) { said.push_back(line); };
  const ImageSet set = load_images("fashion-mnist", context);
  EXPECT_EQ(set.classes[9], "Ankle boot");
  EXPECT_TRUE(set.mirrors);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[0].find("another version"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("the images fashion-mnist: "), std::string::npos) << said[1];

  fs::remove(folder / "data/dataset-fashion-mnist_1_all.deb");  // from now on what is kept must do
  const auto kept = kept_path(packaged_images()[0]);
  ASSERT_TRUE(kept);
  EXPECT_EQ(load_images("fashion-mnist", context).sha256, set.sha256);
  EXPECT_EQ(read_images(*kept).sha256, digest);
  EXPECT_EQ(said.size(), 2u);
}

}  // namespace
}  // namespace co2::train
