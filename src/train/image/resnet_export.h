#pragma once

#include <filesystem>

#include "train/image/image_batches.h"
#include "train/image/resnet.h"
#include "train/task_type.h"

namespace co2::train {

/// Writes model.safetensors, whose names are those of torchvision's ResNets, and config.json: the shape, the names of
/// the classes, and how pixels are made into what the model reads. `show` has the parameters' values, the model its
/// statistics.
void export_resnet(const ResNet& model, const ShowParameters& show, const std::vector<std::string>& classes,
                   const Normalization& normalization, const std::filesystem::path& folder);

/// Puts the weights and statistics of such a folder into a model. What is missing, of another shape, or has no place is
/// named by a DataError before anything is changed. torch's own counters (num_batches_tracked) are passed over.
void import_resnet(ResNet& model, const std::filesystem::path& folder);

}  // namespace co2::train
