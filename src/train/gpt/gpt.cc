#include "train/gpt/gpt.h"

#include <co2/error.h>
#include <co2/unit.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

namespace co2::train {
namespace {

constexpr double kLayerNormEpsilon = 1e-5;
constexpr double kInitDeviation = 0.02;

/// Its values are given later (GptValues).
at::Tensor parameter(at::IntArrayRef shape) {
  at::Tensor tensor = torch::empty(shape);
  release_memory(tensor);
  return tensor;
}

struct LayerNorm : torch::nn::Module {
  explicit LayerNorm(int width) {
    weight = register_parameter("weight", parameter({width}));
    bias = register_parameter("bias", parameter({width}));
  }
  at::Tensor forward(const at::Tensor& x) { return at::layer_norm(x, weight.sizes(), weight, bias, kLayerNormEpsilon); }
  at::Tensor weight, bias;
};

/// A linear layer with its weight as [in, out], as GPT-2 stores it. Works on [rows, in].
struct Conv1D : torch::nn::Module {
  Conv1D(int in, int out) {
    weight = register_parameter("weight", parameter({in, out}));
    bias = register_parameter("bias", parameter({out}));
  }
  at::Tensor forward(const at::Tensor& x) { return at::addmm(bias, x, weight); }
  at::Tensor weight, bias;
};

struct Embedding : torch::nn::Module {
  Embedding(int count, int width) { weight = register_parameter("weight", parameter({count, width})); }
  at::Tensor weight;
};

struct Attention : UnitModule {
  explicit Attention(const GptConfig& config)
      : heads(config.heads),
        c_attn(register_module("c_attn", std::make_shared<Conv1D>(config.width, 3 * config.width))),
        c_proj(register_module("c_proj", std::make_shared<Conv1D>(config.width, config.width))) {}

  at::Tensor forward(const at::Tensor& x, std::int64_t batch, std::int64_t time) {
    return as_unit([&] { return mix(x, batch, time); });
  }
  at::Tensor mix(const at::Tensor& x, std::int64_t batch, std::int64_t time) {
    const auto width = x.size(1);
    // Heads are strided views of the one product: the attention kernel takes strides, so nothing is copied, and its
    // result lies in memory as [batch, time, width].
    const auto parts =
        c_attn->forward(x).view({batch, time, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    return c_proj->forward(mixed.transpose(1, 2).reshape({batch * time, width}));
  }
  int heads;
  std::shared_ptr<Conv1D> c_attn, c_proj;
};

struct Mlp : UnitModule {
  explicit Mlp(const GptConfig& config)
      : c_fc(register_module("c_fc", std::make_shared<Conv1D>(config.width, 4 * config.width))),
        c_proj(register_module("c_proj", std::make_shared<Conv1D>(4 * config.width, config.width))) {}
  at::Tensor forward(const at::Tensor& x) {
    return as_unit([&] { return c_proj->forward(at::gelu(c_fc->forward(x), "tanh")); });
  }
  std::shared_ptr<Conv1D> c_fc, c_proj;
};

struct Block : torch::nn::Module {
  explicit Block(const GptConfig& config) {
    ln_1 = register_module("ln_1", std::make_shared<LayerNorm>(config.width));
    attn = register_module("attn", std::make_shared<Attention>(config));
    ln_2 = register_module("ln_2", std::make_shared<LayerNorm>(config.width));
    mlp = register_module("mlp", std::make_shared<Mlp>(config));
  }
  at::Tensor forward(const at::Tensor& x, std::int64_t batch, std::int64_t time) {
    const auto y = x + attn->forward(ln_1->forward(x), batch, time);
    return y + mlp->forward(ln_2->forward(y));
  }
  std::shared_ptr<LayerNorm> ln_1, ln_2;
  std::shared_ptr<Attention> attn;
  std::shared_ptr<Mlp> mlp;
};

void check(const GptConfig& config) {
  if (config.layers < 1 || config.heads < 1 || config.width < 1 || config.context < 1 || config.vocabulary < 1) {
    throw OptionError("a GPT needs at least one layer, head, channel, position and token");
  }
  if (config.width % config.heads != 0) {
    throw OptionError(
        fmt::format("a GPT's width ({}) must be a multiple of its heads ({})", config.width, config.heads));
  }
}

}  // namespace

/// Everything below "transformer." in the parameter names.
struct Gpt::Stack : torch::nn::Module {
  explicit Stack(const GptConfig& config) {
    wte = register_module("wte", std::make_shared<Embedding>(config.vocabulary, config.width));
    wpe = register_module("wpe", std::make_shared<Embedding>(config.context, config.width));
    for (int i = 0; i < config.layers; ++i) {
      blocks.push_back(std::make_shared<Block>(config));
      layers->push_back(blocks.back());
    }
    register_module("h", layers);
    ln_f = register_module("ln_f", std::make_shared<LayerNorm>(config.width));
  }
  std::shared_ptr<Embedding> wte, wpe;
  torch::nn::ModuleList layers;
  std::vector<std::shared_ptr<Block>> blocks;
  std::shared_ptr<LayerNorm> ln_f;
};

Gpt::Gpt(const GptConfig& config) : config_(config) {
  check(config);
  transformer_ = register_module("transformer", std::make_shared<Stack>(config));
}

Gpt::Gpt(const GptConfig& config, const FirstValues& values) : Gpt(config) {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : named_parameters()) {
    at::Tensor tensor = parameter.value();
    tensor.set_data(at::empty_like(tensor));
    values(parameter.key(), tensor);
  }
}

Gpt::~Gpt() = default;

at::Tensor Gpt::forward(const at::Tensor& tokens) {
  const auto batch = tokens.size(0), time = tokens.size(1);
  TORCH_CHECK(time <= config_.context, "a GPT with context ", config_.context, " was given ", time, " tokens");
  auto& stack = *transformer_;
  auto x = at::embedding(stack.wte->weight, tokens) + stack.wpe->weight.narrow(0, 0, time);
  x = x.view({batch * time, config_.width});
  for (const auto& block : stack.blocks) x = block->forward(x, batch, time);
  return at::linear(stack.ln_f->forward(x), stack.wte->weight);
}

at::Tensor Gpt::loss(const at::Tensor& tokens, const at::Tensor& targets) {
  // Losses are compared in their fourth digit, which bfloat16 does not have.
  return at::cross_entropy_loss(forward(tokens).to(at::kFloat), targets.reshape({-1}));
}

Gpt::Gpt(const GptConfig& config, std::uint64_t seed) : Gpt(config, gpt_values(config, seed)) {}

FirstValues gpt_values(const GptConfig& config, std::uint64_t seed) {
  // Two residual additions per layer: their projections start smaller, so that the sum keeps its variance.
  const double residual_deviation = kInitDeviation / std::sqrt(2.0 * config.layers);
  return [=, random = at::detail::createCPUGenerator(seed)](const std::string& name, const at::Tensor& into) mutable {
    const auto of = [&](std::string_view ending) { return name.ends_with(ending); };
    if (of(".bias")) {
      into.zero_();
    } else if (of(".ln_1.weight") || of(".ln_2.weight") || of(".ln_f.weight")) {
      into.fill_(1);
    } else {
      into.normal_(0, of(".c_proj.weight") ? residual_deviation : kInitDeviation, random);
    }
  };
}

std::optional<std::string> sample_text(Gpt& model, const std::string& prompt, int length, double temperature,
                                       std::uint64_t seed) {
  if (prompt.empty()) throw OptionError("a text sample needs a prompt of at least one byte");
  if (!(temperature > 0)) throw OptionError(fmt::format("temperature is {}; it must be above 0", temperature));
  const at::NoGradGuard no_grad;
  auto random = at::detail::createCPUGenerator(seed);
  std::string text = prompt;
  for (int i = 0; i < length; ++i) {
    const auto seen = std::min<std::size_t>(text.size(), model.config().context);
    auto tokens = at::empty({1, static_cast<std::int64_t>(seen)}, at::kLong);
    for (std::size_t t = 0; t < seen; ++t) {
      tokens.data_ptr<std::int64_t>()[t] = static_cast<unsigned char>(text[text.size() - seen + t]);
    }
    const auto logits = model.forward(tokens)[static_cast<std::int64_t>(seen) - 1].to(at::kFloat);
    const auto probabilities = at::softmax(logits / temperature, -1);
    if (!at::isfinite(probabilities).all().item<bool>()) return std::nullopt;
    const auto next = at::multinomial(probabilities, 1, false, random);
    text.push_back(static_cast<char>(next.item<std::int64_t>()));
  }
  return text.substr(prompt.size());
}

}  // namespace co2::train
