#pragma once

#include <co2/options.h>
#include <co2/unit.h>

#include <vector>

#include "flat/flat_parameters.h"

namespace torch::optim {
class Optimizer;
}

namespace co2 {

/// The model's units of which `optimizer` trains something, in the order in which the model has registered them. Throws
/// OptionError if units contain units.
std::vector<UnitModule*> units_of(torch::nn::Module& model, torch::optim::Optimizer& optimizer);

/// How the parameters are laid out for a recipe. Throws OptionError if ZeRO 3 is wanted of a model without units.
FlatLayout layout_for(const Recipe& recipe, torch::nn::Module& model, const std::vector<UnitModule*>& units);

/// About the order in which forward uses them. The optimizer's own order need not be: with its parameters in groups by
/// weight decay, say, the last group is only complete when backward has come to the first layer.
std::vector<at::Tensor> in_model_order(std::vector<at::Tensor> trained, const torch::nn::Module& model);

}  // namespace co2
