#include "train/image/resnet.h"

#include <co2/unit.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <string>

namespace co2::train {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kNewestShare = 0.1;  // of the newest batch in the running statistics

}  // namespace

struct ResNet::Convolution : torch::nn::Module {
  Convolution(int in, int out, int side, int step) : stride(step), padding(side / 2) {
    weight = register_parameter("weight", torch::empty({out, in, side, side}));
  }
  at::Tensor forward(const at::Tensor& x) const { return at::conv2d(x, weight, {}, stride, padding); }
  at::Tensor weight;
  int stride;
  int padding;
};

/// torch's own counts batches too, which nothing here needs.
struct ResNet::BatchNorm : torch::nn::Module {
  explicit BatchNorm(int width) {
    weight = register_parameter("weight", torch::ones({width}));
    bias = register_parameter("bias", torch::zeros({width}));
    running_mean = register_buffer("running_mean", torch::zeros({width}));
    running_var = register_buffer("running_var", torch::ones({width}));
  }
  /// Where the weights are rounded copies (--compute bfloat16), statistics still are not.
  at::Tensor forward(const at::Tensor& x) {
    return at::batch_norm(x, weight.to(at::kFloat), bias.to(at::kFloat), running_mean, running_var, is_training(),
                          kNewestShare, kEpsilon, /*cudnn_enabled=*/false);
  }
  at::Tensor weight, bias, running_mean, running_var;
};

struct ResNet::Shortcut : torch::nn::Module {
  Shortcut(int in, int out, int stride) {
    convolution = register_module("0", std::make_shared<Convolution>(in, out, 1, stride));
    norm = register_module("1", std::make_shared<BatchNorm>(out));
  }
  at::Tensor forward(const at::Tensor& x) { return norm->forward(convolution->forward(x)); }
  std::shared_ptr<Convolution> convolution;
  std::shared_ptr<BatchNorm> norm;
};

struct ResNet::Block : UnitModule {
  Block(int in, int out, int stride) {
    conv1 = register_module("conv1", std::make_shared<Convolution>(in, out, 3, stride));
    bn1 = register_module("bn1", std::make_shared<BatchNorm>(out));
    conv2 = register_module("conv2", std::make_shared<Convolution>(out, out, 3, 1));
    bn2 = register_module("bn2", std::make_shared<BatchNorm>(out));
    if (in != out) downsample = register_module("downsample", std::make_shared<Shortcut>(in, out, stride));
  }
  at::Tensor forward(const at::Tensor& x) {
    return as_unit([&] {
      const auto y = bn2->forward(conv2->forward(at::relu(bn1->forward(conv1->forward(x)))));
      return at::relu(y + (downsample ? downsample->forward(x) : x));
    });
  }
  std::shared_ptr<Convolution> conv1, conv2;
  std::shared_ptr<BatchNorm> bn1, bn2;
  std::shared_ptr<Shortcut> downsample;
};

struct ResNet::Linear : torch::nn::Module {
  Linear(int in, int out) {
    weight = register_parameter("weight", torch::empty({out, in}));
    bias = register_parameter("bias", torch::zeros({out}));
  }
  at::Tensor weight, bias;
};

ResNet::ResNet(const ResNetConfig& config, std::uint64_t seed) : config_(config) {
  conv1_ = register_module("conv1", std::make_shared<Convolution>(config.images.channels, config.widths[0], 3, 1));
  bn1_ = register_module("bn1", std::make_shared<BatchNorm>(config.widths[0]));
  int in = config.widths[0];
  int stage = 0;
  for (const int width : config.widths) {
    torch::nn::ModuleList layer;
    for (int block = 0; block < config.blocks; ++block) {
      blocks_.push_back(std::make_shared<Block>(in, width, in == width ? 1 : 2));
      layer->push_back(blocks_.back());
      in = width;
    }
    register_module(fmt::format("layer{}", ++stage), layer);
  }
  fc_ = register_module("fc", std::make_shared<Linear>(in, config.images.classes));

  const torch::NoGradGuard no_grad;
  auto random = at::detail::createCPUGenerator(seed);
  for (auto& parameter : parameters()) {
    // He et al. 2015: the variance of a gradient stays the same through convolution and ReLU.
    if (parameter.dim() == 4) {
      const auto fan_out = static_cast<double>(parameter.size(0) * parameter.size(2) * parameter.size(3));
      parameter.normal_(0, std::sqrt(2 / fan_out), random);
    } else if (parameter.dim() == 2) {
      const double bound = 1 / std::sqrt(static_cast<double>(parameter.size(1)));
      parameter.uniform_(-bound, bound, random);
    }
  }
}

ResNet::~ResNet() = default;

at::Tensor ResNet::forward(const at::Tensor& images) {
  auto x = at::relu(bn1_->forward(conv1_->forward(images.to(conv1_->weight.scalar_type()))));
  for (const auto& block : blocks_) x = block->forward(x);
  return at::linear(x.mean({2, 3}), fc_->weight, fc_->bias);
}

}  // namespace co2::train
