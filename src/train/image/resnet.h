#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "train/image/resnet_config.h"

namespace co2::train {

/// A ResNet with the names of torchvision's (conv1, bn1, layer1.0.conv1, layer2.0.downsample.0, fc, …). Where a block
/// changes the number of channels, its shortcut is a convolution of 1 by 1 with a norm (option B of the paper).
class ResNet : public torch::nn::Module {
 public:
  /// The same seed gives the same model on every worker.
  ResNet(const ResNetConfig& config, std::uint64_t seed);
  ~ResNet() override;

  /// float32 [batch, channels, height, width], fastest with channels last in memory. Returns logits [batch, classes].
  at::Tensor forward(const at::Tensor& images);

  const ResNetConfig& config() const { return config_; }

 private:
  struct Convolution;
  struct BatchNorm;
  struct Shortcut;
  struct Block;
  struct Linear;

  ResNetConfig config_;
  std::shared_ptr<Convolution> conv1_;
  std::shared_ptr<BatchNorm> bn1_;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::shared_ptr<Linear> fc_;
};

}  // namespace co2::train
