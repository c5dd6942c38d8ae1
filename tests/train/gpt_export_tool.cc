// gpt_export_tool FOLDER: exports a small GPT, and writes batch.safetensors: bytes, the bytes that follow them, and the
// logits and loss that this implementation computes. hf_parity_test.py compares.

#include <torch/torch.h>

#include <cstdio>

#include "checkpoint/safetensors.h"
#include "train/data/synthetic.h"
#include "train/data/windows.h"
#include "train/gpt/gpt.h"
#include "train/gpt/gpt_export.h"

int main(int argc, char** argv) {
  using namespace co2::train;
  if (argc != 2) {
    std::fputs("usage: gpt_export_tool FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  const at::NoGradGuard no_grad;
  Gpt model({3, 4, 64, 48}, 7);
  // Away from the initial values, where biases are zero and activations so small that every GELU looks linear: mistakes
  // would hide there.
  auto random = at::detail::createCPUGenerator(1);
  for (auto& parameter : model.parameters()) parameter.add_(at::empty_like(parameter).normal_(0, 0.1, random));

  const Windows windows({"synthetic", "", synthetic_text(50'000)}, 0.1, 48);
  const auto batch = windows.training(2, 0, 0, 5);
  std::filesystem::create_directories(folder / "model");
  const auto show = [&](const co2::ParameterVisitor& visitor) {
    for (const auto& parameter : model.named_parameters()) visitor(parameter.key(), parameter.value());
  };
  export_gpt(model, show, folder / "model");
  co2::checkpoint::write_safetensors(folder / "batch.safetensors", {{{"tokens", batch.tokens},
                                                                     {"targets", batch.targets},
                                                                     {"logits", model.forward(batch.tokens)},
                                                                     {"loss", model.loss(batch.tokens, batch.targets)}},
                                                                    {}});
  return 0;
}
