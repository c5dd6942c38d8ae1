#pragma once

#include <ATen/core/Tensor.h>
#include <co2/parameters.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "train/gpt/gpt_config.h"

namespace co2::train {

/// GPT-2 (pre-norm, tanh GELU, tied output layer, no dropout) whose parameters have the names and layouts of Hugging
/// Face's GPT2LMHeadModel, so that an exported file loads there as it is.
class Gpt : public torch::nn::Module {
 public:
  /// Its parameters have no memory yet: a Synchronizer gives them some.
  explicit Gpt(const GptConfig& config);
  Gpt(const GptConfig& config, const FirstValues& values);
  Gpt(const GptConfig& config, std::uint64_t seed);
  ~Gpt() override;

  /// tokens: int64 [batch, time], time <= context. Returns logits [batch * time, vocabulary].
  at::Tensor forward(const at::Tensor& tokens);

  /// Mean cross entropy in nats per token; targets has the shape of tokens.
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets);

  const GptConfig& config() const { return config_; }

 private:
  struct Stack;
  GptConfig config_;
  std::shared_ptr<Stack> transformer_;
};

/// GPT-2's initialisation, for one parameter after the other in the order of registration, from a generator of its own:
/// the same seed gives the same model on every worker.
FirstValues gpt_values(const GptConfig& config, std::uint64_t seed);

/// `length` bytes that the model writes after `prompt` (at least one byte), drawn at that temperature (> 0; towards 0
/// it always takes the likeliest). The same seed gives the same text. Nothing if what the model computes is not finite.
std::optional<std::string> sample_text(Gpt& model, const std::string& prompt, int length, double temperature,
                                       std::uint64_t seed);

}  // namespace co2::train
