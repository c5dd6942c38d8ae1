#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace co2::train {

/// Shape of a byte-level GPT-2.
struct GptConfig {
  int layers = 5;
  int heads = 4;
  int width = 128;
  int context = 128;
  int vocabulary = 256;  ///< one token per byte
};

/// nano, pico (a tenth of it, for studies), tiny, mini, small, medium, large, xl, 7b: from about 1 M parameters, by
/// GPT-2's own sizes (small to xl), to the size of the largest model that CO2 was published with.
const std::vector<std::string>& gpt_presets();

/// The preset of that name with its own context, or with `context` if that is not 0. Throws OptionError with the
/// closest name.
GptConfig gpt_preset(std::string_view name, int context = 0);

/// The learning rate that a preset trains well with, for AdamW.
double gpt_learning_rate(std::string_view name);

/// Exact number of parameters of such a model, without building it.
std::int64_t parameter_count(const GptConfig& config);

}  // namespace co2::train
