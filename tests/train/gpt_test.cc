#include "train/gpt/gpt.h"

#include <co2/error.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <map>

#include "support/temporary.h"
#include "train/gpt/gpt_config.h"

namespace co2::train {
namespace {

constexpr GptConfig kSmallest{2, 2, 16, 12};

at::Tensor random_tokens(std::int64_t batch, std::int64_t time, std::uint64_t seed) {
  auto random = at::detail::createCPUGenerator(seed);
  return at::randint(0, 256, {batch, time}, random, at::kLong);
}

TEST(Gpt, ParametersHaveTheNamesAndShapesOfGpt2) {
  Gpt model(kSmallest, 1);
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const auto& p : model.named_parameters()) shapes[p.key()] = p.value().sizes().vec();
  using Shape = std::vector<std::int64_t>;
  std::map<std::string, Shape> expected = {{"transformer.wte.weight", {256, 16}},
                                           {"transformer.wpe.weight", {12, 16}},
                                           {"transformer.ln_f.weight", {16}},
                                           {"transformer.ln_f.bias", {16}}};
  for (const std::string layer : {"transformer.h.0.", "transformer.h.1."}) {
    for (const std::string norm : {"ln_1", "ln_2"}) {
      expected[layer + norm + ".weight"] = {16};
      expected[layer + norm + ".bias"] = {16};
    }
    const std::map<std::string, Shape> matrices = {
        {"attn.c_attn", {16, 48}}, {"attn.c_proj", {16, 16}}, {"mlp.c_fc", {16, 64}}, {"mlp.c_proj", {64, 16}}};
    for (const auto& [name, shape] : matrices) {
      expected[layer + name + ".weight"] = shape;
      expected[layer + name + ".bias"] = {shape[1]};
    }
  }
  EXPECT_EQ(shapes, expected);
}

TEST(Gpt, CountOfParametersIsThatOfTheBuiltModel) {
  for (const auto& config : {kSmallest, gpt_preset("nano"), gpt_preset("tiny"), gpt_preset("mini", 100)}) {
    std::int64_t built = 0;
    for (const auto& p : Gpt(config, 1).parameters()) built += p.numel();
    EXPECT_EQ(parameter_count(config), built);
  }
  EXPECT_EQ(parameter_count(gpt_preset("nano")), 1'040'768);
  // GPT-2's published sizes, with its own vocabulary.
  for (const auto& [name, count] : std::map<std::string, std::int64_t>{
           {"small", 124'439'808}, {"medium", 354'823'168}, {"large", 774'030'080}, {"xl", 1'557'611'200}}) {
    auto config = gpt_preset(name);
    config.vocabulary = 50257;
    EXPECT_EQ(parameter_count(config), count) << name;
  }
}

TEST(Gpt, UnknownPresetNamesTheClosest) {
  const auto message = test::message_of<OptionError>([] { gpt_preset("nanno"); });
  EXPECT_NE(message.find("nanno"), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean 'nano"), std::string::npos) << message;
  EXPECT_THROW(gpt_preset("nano", -1), OptionError);
  EXPECT_THROW(Gpt({2, 3, 16, 12}, 1), OptionError);  // 16 channels can't be divided among 3 heads
}

TEST(Gpt, LaterBytesDoNotChangeEarlierLogits) {
  const at::NoGradGuard no_grad;
  Gpt model(kSmallest, 3);
  auto tokens = random_tokens(2, 12, 5);
  const auto before = model.forward(tokens).view({2, 12, 256}).clone();
  tokens.select(1, 7).add_(1).remainder_(256);
  const auto after = model.forward(tokens).view({2, 12, 256});
  EXPECT_TRUE(at::equal(before.narrow(1, 0, 7), after.narrow(1, 0, 7)));
  for (int t = 7; t < 12; ++t) EXPECT_FALSE(at::equal(before.select(1, t), after.select(1, t))) << t;
}

TEST(Gpt, UntrainedLossIsThatOfAUniformGuess) {
  Gpt model(gpt_preset("nano"), 1);
  const auto tokens = random_tokens(4, 128, 1);
  EXPECT_NEAR(model.loss(tokens, random_tokens(4, 128, 2)).item<double>(), std::log(256.0), 0.1);
}

TEST(Gpt, InitialisationIsGpt2sAndDependsOnlyOnTheSeed) {
  const auto config = gpt_preset("nano");
  Gpt first(config, 7), second(config, 7), other(config, 8);
  const auto a = first.named_parameters(), b = second.named_parameters(), c = other.named_parameters();
  for (const auto& p : a) EXPECT_TRUE(at::equal(p.value(), b[p.key()])) << p.key();
  EXPECT_FALSE(at::equal(a["transformer.wte.weight"], c["transformer.wte.weight"]));
  EXPECT_NEAR(a["transformer.h.0.attn.c_attn.weight"].std().item<double>(), 0.02, 0.001);
  const double residual = 0.02 / std::sqrt(2.0 * config.layers);
  EXPECT_NEAR(a["transformer.h.4.attn.c_proj.weight"].std().item<double>(), residual, 0.05 * residual);
  EXPECT_NEAR(a["transformer.h.4.mlp.c_proj.weight"].std().item<double>(), residual, 0.05 * residual);
  EXPECT_EQ(a["transformer.h.0.mlp.c_fc.bias"].abs().max().item<double>(), 0);
}

TEST(Gpt, GradientsReachEveryParameter) {
  Gpt model(kSmallest, 1);
  model.loss(random_tokens(3, 12, 1), random_tokens(3, 12, 2)).backward();
  for (const auto& p : model.named_parameters()) {
    ASSERT_TRUE(p.value().grad().defined()) << p.key();
    EXPECT_GT(p.value().grad().abs().max().item<double>(), 0) << p.key();
  }
}

TEST(Gpt, LearnsATinyBatchByHeartAndRecitesIt) {
  Gpt model({2, 2, 32, 16}, 1);
  const std::string text = "to be or not to be";
  auto bytes = at::empty({17}, at::kLong);
  for (int i = 0; i < 17; ++i) bytes[i] = static_cast<std::int64_t>(text[static_cast<std::size_t>(i)]);
  const auto tokens = bytes.narrow(0, 0, 16).unsqueeze(0), targets = bytes.narrow(0, 1, 16).unsqueeze(0);
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0));
  double loss = 0;
  for (int step = 0; step < 150; ++step) {
    optimizer.zero_grad();
    const auto now = model.loss(tokens, targets);
    now.backward();
    optimizer.step();
    loss = now.item<double>();
  }
  EXPECT_LT(loss, 0.05);
  EXPECT_EQ(sample_text(model, "to be ", 10, 0.1, 1), text.substr(6, 10));
}

TEST(Gpt, SamplesRepeatWithTheSameSeedAndGoBeyondTheContext) {
  Gpt model(kSmallest, 1);
  const auto text = sample_text(model, "a", 40, 1.0, 5);
  EXPECT_EQ(text.value().size(), 40u);
  EXPECT_EQ(text, sample_text(model, "a", 40, 1.0, 5));
  EXPECT_NE(text, sample_text(model, "a", 40, 1.0, 6));
  EXPECT_THROW(sample_text(model, "", 1, 1.0, 5), OptionError);
  EXPECT_THROW(sample_text(model, "a", 1, 0.0, 5), OptionError);
  EXPECT_THROW(sample_text(model, "a", 1, std::nan(""), 5), OptionError);
}

TEST(Gpt, WithoutFiniteNumbersThereIsNoSample) {
  for (const double value : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Gpt model(kSmallest, 1);
    const at::NoGradGuard no_grad;
    model.named_parameters()["transformer.ln_f.bias"].fill_(value);
    EXPECT_EQ(sample_text(model, "a", 4, 1.0, 5), std::nullopt) << value;
  }
}

}  // namespace
}  // namespace co2::train
