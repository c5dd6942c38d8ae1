#pragma once

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace co2 {

/// Throws OptionError, before anything has been changed, if the optimizer can't be stepped from outside, trains nothing
/// of the model, or something of it twice: in the words of modules and optimizers, which the Core does not know.
void check_trained(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer);

}  // namespace co2
