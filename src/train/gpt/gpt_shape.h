#pragma once

#include "island/memory_plan.h"
#include "train/gpt/gpt_config.h"

namespace co2::train {

/// The parameters of a Gpt without making one: the largest do not fit into this machine.
ModelShape gpt_shape(const GptConfig& config);

}  // namespace co2::train
