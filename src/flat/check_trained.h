#pragma once

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace co2 {

/// Throws OptionError, before anything has been changed, if the optimizer trains nothing of the model, trains something
/// twice, or what it trains has no memory.
void check_trained(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer);

}  // namespace co2
