#include "front/check_trained.h"
#include "flat/check_parameters.h"
#include "front/trained_model.h"

#include <co2/error.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>

namespace co2 {
namespace {

std::string refusal(const torch::nn::Module& model, const std::vector<at::Tensor>& parameters) {
  const torch::optim::SGD optimizer(parameters, 0.1);
  try {
    check_trained(model, optimizer);
    check_parameters(trained_model(const_cast<torch::nn::Module&>(model), optimizer, resolve({})));
  } catch (const OptionError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Layer : torch::nn::Module {
  explicit Layer(const at::Tensor& shared) { weight = register_parameter("weight", shared); }
  at::Tensor weight;
};

struct Model : torch::nn::Module {
  Model(const at::Tensor& first, const at::Tensor& second) {
    embedding = register_module("embedding", std::make_shared<Layer>(first));
    decoder = register_module("decoder", std::make_shared<Layer>(second));
  }
  std::shared_ptr<Layer> embedding, decoder;
};

TEST(CheckTrained, NamesTiedParameters) {
  const at::Tensor weight = torch::randn({3, 4}).requires_grad_();
  const Model tied(weight, weight);
  const std::string text = refusal(tied, tied.parameters());
  EXPECT_TRUE(contains(text, "embedding.weight and decoder.weight are tied")) << text;
  EXPECT_TRUE(contains(text, "parameters() lists a tied weight once per module")) << text;
  EXPECT_EQ(refusal(tied, {weight}), "");  // as it should be done

  const Model apart(weight, torch::randn({3, 4}));
  EXPECT_EQ(refusal(apart, apart.parameters()), "");
  const std::string twice = refusal(apart, {weight, weight});
  EXPECT_TRUE(contains(twice, "twice, embedding.weight")) << twice;
  EXPECT_FALSE(contains(twice, "tied")) << twice;

  // Two tensors with one memory would be two weights once they are flat.
  apart.decoder->weight.set_data(apart.embedding->weight);
  const std::string shared = refusal(apart, apart.parameters());
  EXPECT_TRUE(contains(shared, "embedding.weight and decoder.weight are tied")) << shared;
}

TEST(CheckTrained, RefusesElementsThatShareMemory) {
  torch::nn::Module model;
  model.register_parameter("wide", torch::ones({3, 1}).expand({3, 4}));
  const std::string text = refusal(model, model.parameters());
  EXPECT_TRUE(contains(text, "wide is expanded")) << text;
  torch::nn::Module narrow;
  narrow.register_parameter("one", torch::ones({3, 1}).expand({3, 1}));
  EXPECT_EQ(refusal(narrow, narrow.parameters()), "");
}

TEST(CheckTrained, RefusesAnOptimizerOfAnotherModel) {
  const torch::nn::Linear model(3, 4), other(3, 4);
  const std::string text = refusal(*model, other->parameters());
  EXPECT_TRUE(contains(text, "trains nothing of the model")) << text;
  EXPECT_TRUE(contains(text, "new optimizer for each Synchronizer")) << text;
  EXPECT_EQ(refusal(*model, {model->weight, other->bias}), "");
}

TEST(CheckTrained, RefusesParametersWithoutMemory) {
  const torch::nn::Linear model(3, 4);
  model->weight.storage().unsafeGetStorageImpl()->reset();
  const std::string text = refusal(*model, model->parameters());
  EXPECT_TRUE(contains(text, "weight has no memory")) << text;
}

}  // namespace
}  // namespace co2
