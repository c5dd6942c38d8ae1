#include "train/image/resnet_export.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/files.h"
#include "checkpoint/safetensors.h"

namespace co2::train {
namespace {

constexpr auto kWeights = "model.safetensors";

/// Parameters and statistics, by name, in the order in which they are written.
std::vector<std::pair<std::string, at::Tensor>> all_tensors(const ResNet& model) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& each : model.named_parameters()) all.emplace_back(each.key(), each.value());
  for (const auto& each : model.named_buffers()) all.emplace_back(each.key(), each.value());
  return all;
}

}  // namespace

void export_resnet(const ResNet& model, const ShowParameters& show, const std::vector<std::string>& classes,
                   const Normalization& normalization, const std::filesystem::path& folder) {
  const ResNetConfig& config = model.config();
  checkpoint::Safetensors outline;
  outline.metadata["format"] = "pt";
  for (const auto& [name, tensor] : all_tensors(model)) {
    outline.tensors.emplace_back(name, at::empty(tensor.sizes(), at::dtype(at::kFloat).device(at::kMeta)));
  }
  checkpoint::write_safetensors(folder / kWeights, outline, [&](const checkpoint::PutTensor& put) {
    show(put);
    for (const auto& buffer : model.named_buffers()) put(buffer.key(), buffer.value());
  });
  const nlohmann::ordered_json description = {
      {"architecture", "resnet"},
      {"blocks", std::vector<int>(config.widths.size(), config.blocks)},
      {"widths", config.widths},
      {"shortcut", "convolution"},
      {"channels", config.images.channels},
      {"classes", classes},
      {"pixels", {{"scale", 255}, {"mean", normalization.mean}, {"deviation", normalization.deviation}}},
  };
  write_atomically(folder / "config.json", description.dump(2) + "\n");
}

void import_resnet(ResNet& model, const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / kWeights)) {
    throw DataError(fmt::format("{} has no {}: name a folder that co2 export or co2 train wrote (RUN/model)",
                                folder.string(), kWeights));
  }
  const checkpoint::SafetensorsFile file(folder / kWeights);
  std::map<std::string, at::Tensor> missing;
  for (const auto& [name, tensor] : all_tensors(model)) missing.emplace(name, tensor);
  std::vector<std::pair<at::Tensor, at::Tensor>> found;
  for (const checkpoint::TensorInfo& info : file.header().tensors) {
    if (info.name.ends_with(".num_batches_tracked")) continue;
    const auto place = missing.find(info.name);
    if (place == missing.end()) {
      throw DataError(fmt::format("{} has {}, for which this model has no place: it is of another --model",
                                  (folder / kWeights).string(), info.name));
    }
    if (place->second.sizes() != at::IntArrayRef(info.shape)) {
      throw DataError(fmt::format(
          "{} in {} has the shape [{}], and in this model [{}]: choose --model and --images as config.json beside it "
          "says",
          info.name, (folder / kWeights).string(), fmt::join(info.shape, ", "),
          fmt::join(place->second.sizes(), ", ")));
    }
    found.emplace_back(place->second, file.read(info.name));
    missing.erase(place);
  }
  if (!missing.empty()) {
    throw DataError(
        fmt::format("{} has no {}: it is of another --model", (folder / kWeights).string(), missing.begin()->first));
  }
  const torch::NoGradGuard no_grad;
  for (auto& [into, values] : found) into.copy_(values);
}

}  // namespace co2::train
