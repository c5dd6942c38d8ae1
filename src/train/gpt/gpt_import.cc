#include "train/gpt/gpt_import.h"

#include <co2/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "checkpoint/names.h"
#include "checkpoint/safetensors.h"

namespace co2::train {
namespace {

namespace fs = std::filesystem;

/// The files that the weights are in: model.safetensors, or those that an index names.
std::vector<fs::path> files_of(const fs::path& folder) {
  constexpr auto kOne = "model.safetensors";
  constexpr auto kIndex = "model.safetensors.index.json";
  if (fs::exists(folder / kOne)) return {folder / kOne};
  if (!fs::exists(folder / kIndex)) {
    throw DataError(
        fmt::format("{} has no {}: name a folder that co2 export or save_pretrained() of transformers wrote",
                    folder.string(), kOne));
  }
  const auto index = nlohmann::json::parse(read_file(folder / kIndex), nullptr, /*allow_exceptions=*/false);
  std::set<fs::path> files;
  if (index.is_object() && index.contains("weight_map") && index["weight_map"].is_object()) {
    for (const auto& [tensor, file] : index["weight_map"].items()) {
      if (file.is_string() && checkpoint::is_plain_name(file.get<std::string>())) {
        files.insert(folder / file.get<std::string>());
      }
    }
  }
  if (files.empty()) throw DataError(fmt::format("{} names no files of weights", (folder / kIndex).string()));
  return {files.begin(), files.end()};
}

/// Ours are the names of the whole GPT2LMHeadModel; those of the GPT2Model inside lack a prefix.
std::string our_name(const std::string& name) {
  constexpr std::string_view kPrefix = "transformer.";
  return name.starts_with(kPrefix) || name.starts_with("lm_head.") ? name : std::string(kPrefix) + name;
}

/// What old versions of transformers saved although it follows from the rest: causal masks, and the output layer, which
/// is the embedding.
bool follows_from_the_rest(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name == "lm_head.weight";
}

}  // namespace

FirstValues gpt_weights(const Gpt& model, const fs::path& folder) {
  std::map<std::string, std::vector<std::int64_t>> missing;
  for (const auto& parameter : model.named_parameters()) {
    missing.emplace(parameter.key(), parameter.value().sizes().vec());
  }
  struct Place {
    std::shared_ptr<const checkpoint::SafetensorsFile> file;
    std::string name;
  };
  std::map<std::string, Place> places;
  for (const fs::path& path : files_of(folder)) {
    const auto file = std::make_shared<const checkpoint::SafetensorsFile>(path);
    for (const checkpoint::TensorInfo& info : file->header().tensors) {
      const std::string name = our_name(info.name);
      if (follows_from_the_rest(name)) continue;
      const auto found = missing.find(name);
      if (found == missing.end()) {
        throw DataError(fmt::format("{} has {}, for which this model has no place: it has more layers, or is no GPT-2",
                                    path.string(), info.name));
      }
      if (found->second != info.shape) {
        throw DataError(
            fmt::format("{} in {} has the shape [{}], and in this model [{}]: choose --model and --context "
                        "as config.json beside it says",
                        info.name, path.string(), fmt::join(info.shape, ", "), fmt::join(found->second, ", ")));
      }
      if (!info.dtype.starts_with("F") && info.dtype != "BF16") {
        throw DataError(fmt::format("{} in {} is of {}, which no weight is", info.name, path.string(), info.dtype));
      }
      places.emplace(name, Place{file, info.name});
      missing.erase(found);
    }
  }
  if (!missing.empty()) {
    throw DataError(fmt::format("{} has no {}: it is of a model with fewer layers, or no GPT-2", folder.string(),
                                missing.begin()->first));
  }
  return [places = std::move(places)](const std::string& name, const at::Tensor& into) {
    const Place& place = places.at(name);
    into.copy_(place.file->read(place.name));
  };
}

}  // namespace co2::train
