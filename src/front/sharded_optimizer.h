#pragma once

#include <co2/parameters.h>

#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace co2 {

/// Makes an optimizer update this worker's shard instead of the whole model: its parameter groups then hold the tensors
/// of the shard, and its state is theirs only. What it remembers of the whole model is cut like the parameters. It must
/// have passed check_elementwise(), and never gets the model's parameters back.
void train_shard(torch::optim::Optimizer& optimizer, const std::vector<Parameter>& parameters,
                 const std::vector<TrainedTensor>& shard);

}  // namespace co2
