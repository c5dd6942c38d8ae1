#include "train/gpt/gpt_export.h"

#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/safetensors.h"

namespace co2::train {

void export_gpt(const Gpt& model, const ShowParameters& show, const std::filesystem::path& folder) {
  const auto& config = model.config();
  const nlohmann::ordered_json description = {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"vocab_size", config.vocabulary},
      {"n_positions", config.context},
      {"n_embd", config.width},
      {"n_layer", config.layers},
      {"n_head", config.heads},
      {"n_inner", nullptr},
      {"activation_function", "gelu_new"},
      {"layer_norm_epsilon", 1e-5},
      {"initializer_range", 0.02},
      {"resid_pdrop", 0.0},
      {"embd_pdrop", 0.0},
      {"attn_pdrop", 0.0},
      {"scale_attn_weights", true},
      {"tie_word_embeddings", true},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"torch_dtype", "float32"},
  };
  checkpoint::Safetensors outline;
  outline.metadata["format"] = "pt";
  for (const auto& parameter : model.named_parameters()) {
    outline.tensors.emplace_back(parameter.key(),
                                 at::empty(parameter.value().sizes(), at::dtype(at::kFloat).device(at::kMeta)));
  }
  checkpoint::write_safetensors(folder / "model.safetensors", outline, show);
  write_atomically(folder / "config.json", description.dump(2) + "\n");
}

}  // namespace co2::train
