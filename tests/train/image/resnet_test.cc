#include "train/image/resnet.h"

#include <co2/error.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "checkpoint/safetensors.h"
#include "support/temporary.h"
#include "train/image/resnet_export.h"

namespace co2::train {
namespace {

constexpr ImageFormat kColour = {.channels = 3, .classes = 10};

ShowParameters show(const ResNet& model) {
  return [&model](const ParameterVisitor& visitor) {
    for (const auto& each : model.named_parameters()) visitor(each.key(), each.value());
  };
}

at::Tensor some_images(int count = 4) {
  torch::manual_seed(3);
  return torch::randn({count, 3, 20, 20});
}

TEST(ResNet, HasTheShapeThatPlansTakeForIt) {
  for (const ResNetPreset& preset : resnet_presets()) {
    const ResNetConfig config = resnet_preset(preset.name, kColour);
    const ResNet model(config, 1);
    std::vector<std::int64_t> expected, planned;
    for (const auto& parameter : model.parameters()) expected.push_back(parameter.numel());
    for (const auto& parameter : resnet_shape(config).parameters) planned.push_back(parameter.elements);
    EXPECT_EQ(planned, expected) << preset.name;
  }
  // 0.27 M, say He et al. 2016, with shortcuts that have no parameters: 2,048 + 512 and two norms more.
  EXPECT_EQ(resnet_shape(resnet_preset("resnet-20", kColour)).elements(), 269'722 + 2'560 + 192);
}

TEST(ResNet, IsTheSameForTheSameSeed) {
  const ResNetConfig config = resnet_preset("resnet-8", kColour);
  ResNet one(config, 5), same(config, 5), other(config, 6);
  for (ResNet* model : {&one, &same, &other}) model->eval();
  const auto logits = one.forward(some_images());
  EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{4, 10}));
  EXPECT_TRUE(torch::equal(logits, same.forward(some_images())));
  EXPECT_FALSE(torch::equal(logits, other.forward(some_images())));
}

TEST(ResNet, LearnsWithEveryParameterAndKeepsStatisticsOfTrainingOnly) {
  ResNet model(resnet_preset("resnet-8", kColour), 1);
  const auto statistics = [&] {
    std::vector<at::Tensor> all;
    for (const auto& buffer : model.buffers()) all.push_back(buffer.clone().view({-1}));
    return torch::cat(all);
  };
  const auto before = statistics();
  model.eval();
  model.forward(some_images());
  EXPECT_TRUE(torch::equal(statistics(), before));
  model.train();
  model.forward(some_images()).square().sum().backward();
  EXPECT_FALSE(torch::equal(statistics(), before));
  for (const auto& each : model.named_parameters()) {
    ASSERT_TRUE(each.value().grad().defined()) << each.key();
    EXPECT_GT(each.value().grad().abs().max().item<double>(), 0) << each.key();
  }
}

TEST(ResNet, ComputesInBfloat16WithPlainStatistics) {
  ResNet model(resnet_preset("resnet-8", kColour), 1);
  const auto plain = model.forward(some_images());
  for (auto& parameter : model.parameters()) parameter.set_data(parameter.to(torch::kBFloat16));
  const auto rounded = model.forward(some_images());
  EXPECT_EQ(rounded.scalar_type(), torch::kBFloat16);
  EXPECT_LT((rounded.to(torch::kFloat) - plain).abs().max().item<double>(), 0.1);
  for (const auto& buffer : model.buffers()) EXPECT_EQ(buffer.scalar_type(), torch::kFloat);
}

class ResNetFiles : public testing::Test {
 protected:
  void write(const ResNet& model) {
    export_resnet(model, show(model), {"a", "b"}, {.mean = {0.5}, .deviation = {0.2}}, folder_.path());
  }
  std::string refusal(ResNet& model) {
    return test::message_of<DataError>([&] { import_resnet(model, folder_.path()); });
  }
  const test::TestFolder folder_;
};

TEST_F(ResNetFiles, AreReadAsTheyWereWritten) {
  ResNet model(resnet_preset("resnet-8", kColour), 1), other(resnet_preset("resnet-8", kColour), 2);
  model.forward(some_images());  // statistics that are not the first ones
  write(model);
  import_resnet(other, folder_.path());
  model.eval();
  other.eval();
  EXPECT_TRUE(torch::equal(other.forward(some_images()), model.forward(some_images())));
}

TEST_F(ResNetFiles, OfAnotherModelAreRefusedAndChangeNothing) {
  ResNet small(resnet_preset("resnet-8", kColour), 1), deep(resnet_preset("resnet-20", kColour), 2);
  ResNet gray(resnet_preset("resnet-8", {.channels = 1, .classes = 10}), 3);
  EXPECT_NE(refusal(small).find("has no model.safetensors"), std::string::npos);
  write(small);
  const auto before = deep.parameters()[0].clone();
  EXPECT_NE(refusal(deep).find("has no layer1.1.bn1.bias: it is of another --model"), std::string::npos);
  EXPECT_TRUE(torch::equal(deep.parameters()[0], before));
  EXPECT_NE(refusal(gray).find("conv1.weight"), std::string::npos);
  EXPECT_NE(refusal(gray).find("[16, 3, 3, 3], and in this model [16, 1, 3, 3]"), std::string::npos) << refusal(gray);
  write(deep);
  EXPECT_NE(refusal(small).find("for which this model has no place"), std::string::npos);
}

TEST_F(ResNetFiles, FromTorchMayCountBatches) {
  ResNet model(resnet_preset("resnet-8", kColour), 1), other(resnet_preset("resnet-8", kColour), 2);
  write(model);
  auto contents = checkpoint::read_safetensors(folder_ / "model.safetensors");
  contents.tensors.emplace_back("bn1.num_batches_tracked", torch::tensor(7, torch::kLong));
  checkpoint::write_safetensors(folder_ / "model.safetensors", contents);
  EXPECT_EQ(refusal(other), "");
  EXPECT_TRUE(torch::equal(other.parameters()[0], model.parameters()[0]));
}

}  // namespace
}  // namespace co2::train
