#pragma once

#include <co2/parameters.h>

#include "options/recipe.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace co2 {

/// A module and its optimizer as the Core sees them: what the optimizer trains, in the order in which the module has
/// registered it, which is about the order in which forward uses it. (The optimizer's own order need not be: with its
/// parameters in groups by weight decay, say, the last group is only complete when backward has come to the first
/// layer.) Units are those of which something is trained; throws OptionError if units contain units.
TrainedModel trained_model(torch::nn::Module& model, const torch::optim::Optimizer& optimizer, const Recipe& recipe);

}  // namespace co2
