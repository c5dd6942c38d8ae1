#include "train/optimizer.h"

#include <torch/torch.h>

#include "train/config.h"
#include "train/fused_adamw.h"
#include "train/validate.h"

namespace co2::train {
namespace {

using torch::optim::OptimizerParamGroup;

std::unique_ptr<torch::optim::OptimizerOptions> options_of(const TrainConfig& config, double decay) {
  const auto betas = std::make_tuple(config.beta1, config.beta2);
  if (config.optimizer == "adamw") {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(config.learning_rate).betas(betas).weight_decay(decay));
  }
  if (config.optimizer == "adam") {
    return std::make_unique<torch::optim::AdamOptions>(
        torch::optim::AdamOptions(config.learning_rate).betas(betas).weight_decay(decay));
  }
  if (config.optimizer == "sgd") {
    return std::make_unique<torch::optim::SGDOptions>(
        torch::optim::SGDOptions(config.learning_rate).momentum(config.beta1).weight_decay(decay));
  }
  throw unknown_choice("optimizer", config.optimizer, optimizer_names());
}

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"adamw", "adam", "sgd"};
  return names;
}

bool has_second_moments(const std::string& optimizer) { return optimizer != "sgd"; }

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const TrainConfig& config, torch::nn::Module& model) {
  std::vector<at::Tensor> matrices, vectors;
  for (const auto& parameter : model.parameters()) {
    if (parameter.requires_grad()) (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  }
  std::vector<OptimizerParamGroup> groups;
  if (!matrices.empty()) groups.emplace_back(matrices, options_of(config, config.weight_decay));
  if (!vectors.empty()) groups.emplace_back(vectors, options_of(config, 0));
  if (config.optimizer == "adamw") return std::make_unique<FusedAdamW>(groups);
  if (config.optimizer == "adam") return std::make_unique<torch::optim::Adam>(groups);
  return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(config.learning_rate));
}

void set_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

}  // namespace co2::train
