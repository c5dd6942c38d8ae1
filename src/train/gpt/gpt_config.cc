#include "train/gpt/gpt_config.h"

#include <co2/error.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/closest_name.h"
#include "train/validate.h"

namespace co2::train {
namespace {

struct Preset {
  std::string_view name;
  GptConfig config;
  double learning_rate;  // small and larger: GPT-3's for such sizes; nano, pico: measured
};

constexpr Preset kPresets[] = {
    {"nano", {5, 4, 128, 128}, 4e-3},        {"pico", {2, 4, 64, 64}, 4e-3},
    {"tiny", {6, 8, 256, 256}, 2e-3},        {"mini", {6, 6, 384, 256}, 2e-3},
    {"small", {12, 12, 768, 1024}, 6e-4},    {"medium", {24, 16, 1024, 1024}, 3e-4},
    {"large", {36, 20, 1280, 1024}, 2.5e-4}, {"xl", {48, 25, 1600, 1024}, 2e-4},
    {"7b", {32, 32, 4096, 2048}, 1.2e-4},
};

const Preset& find_preset(std::string_view name) {
  const auto* preset = std::ranges::find(kPresets, name, &Preset::name);
  if (preset == std::end(kPresets)) throw unknown_choice("model", name, gpt_presets());
  return *preset;
}

}  // namespace

double gpt_learning_rate(std::string_view name) { return find_preset(name).learning_rate; }

const std::vector<std::string>& gpt_presets() {
  static const std::vector<std::string> names = names_of(kPresets, &Preset::name);
  return names;
}

GptConfig gpt_preset(std::string_view name, int context) {
  GptConfig config = find_preset(name).config;
  if (context < 0) {
    throw OptionError(fmt::format("context is {}; it must be 1 or more, or 0 for the preset's own", context));
  }
  if (context > 0) config.context = context;
  return config;
}

std::int64_t parameter_count(const GptConfig& config) {
  const std::int64_t width = config.width;
  // Per layer: four matrices of 3, 1, 4 and 4 times width², their biases (9 widths), two layer norms (4 widths).
  const std::int64_t layer = 12 * width * width + 13 * width;
  return (config.vocabulary + config.context) * width + config.layers * layer + 2 * width;
}

}  // namespace co2::train
