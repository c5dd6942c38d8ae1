// resnet_export_tool FOLDER: exports a small ResNet, and writes batch.safetensors: images, and the logits that this
// implementation computes for them, by the statistics of training and by those of the batch. torch_parity_test.py
// compares.

#include <torch/torch.h>

#include <cstdio>

#include "checkpoint/safetensors.h"
#include "train/image/resnet.h"
#include "train/image/resnet_export.h"

int main(int argc, char** argv) {
  using namespace co2::train;
  if (argc != 2) {
    std::fputs("usage: resnet_export_tool FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  const at::NoGradGuard no_grad;
  ResNet model(resnet_preset("resnet-20", {.channels = 3, .classes = 10}), 7);
  // Away from the first values, where norms do nothing: mistakes would hide there.
  auto random = at::detail::createCPUGenerator(1);
  for (auto& parameter : model.parameters()) parameter.add_(at::empty_like(parameter).normal_(0, 0.1, random));
  const auto images = torch::empty({6, 32, 32, 3}).normal_(0, 1, random).permute({0, 3, 1, 2});
  model.forward(images);  // statistics that are not the first ones

  std::filesystem::create_directories(folder / "model");
  const auto show = [&](const co2::ParameterVisitor& visitor) {
    for (const auto& parameter : model.named_parameters()) visitor(parameter.key(), parameter.value());
  };
  export_resnet(model, show, {}, {}, folder / "model");
  model.eval();
  const auto logits = model.forward(images);
  model.train();
  const auto of_batch = model.forward(images);
  co2::checkpoint::write_safetensors(
      folder / "batch.safetensors",
      {{{"images", images.contiguous()}, {"logits", logits}, {"logits_of_batch", of_batch}}, {}});
  return 0;
}
