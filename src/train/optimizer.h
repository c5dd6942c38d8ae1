#pragma once

#include <memory>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace co2::train {

struct TrainConfig;

/// adamw, adam, sgd.
const std::vector<std::string>& optimizer_names();

/// Whether that one keeps an average of squared gradients, which workers can agree on (Options::agree_moments).
bool has_second_moments(const std::string& optimizer);

/// The inner optimizer of config.optimizer with two parameter groups: matrices, which decay, and vectors (biases, layer
/// norms), which do not. A group without parameters is left out.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const TrainConfig& config, torch::nn::Module& model);

/// Sets the learning rate of all groups.
void set_rate(torch::optim::Optimizer& optimizer, double rate);

}  // namespace co2::train
