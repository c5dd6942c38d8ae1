"""An exported model is a Hugging Face model: `transformers` loads it and computes the same logits and loss.

Usage: hf_parity_test.py PATH_TO_gpt_export_tool

Tolerance: both sides compute in float32 with sums in different orders (other layouts and attention kernels). On logits
of about 6 that is a few times 1e-6, measured; we allow 3e-5 on each logit and 1e-5 on the mean loss. To show that this
is tight enough, the test also computes with the mistakes that are easy to make, each of which must miss the tolerance
tenfold: the exact GELU instead of its tanh approximation, another layer-norm epsilon, and a bias left out.
"""

import copy
import subprocess
import sys
import tempfile
from pathlib import Path

LOGIT_TOLERANCE = 3e-5
LOSS_TOLERANCE = 1e-5


def main() -> int:
    try:
        import torch
        from safetensors.torch import load_file
        from transformers import GPT2LMHeadModel
    except ImportError as error:
        print(f"{error}; install what scripts/requirements-test.txt lists", file=sys.stderr)
        return 1

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True, timeout=200)
        batch = load_file(Path(folder) / "batch.safetensors")
        model, report = GPT2LMHeadModel.from_pretrained(Path(folder) / "model", output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        # The tied output layer is not in the file, and transformers knows that it need not be.
        left = [key for key in report.get(kind, []) if key != "lm_head.weight"]
        assert not left, f"{kind}: {left}"

    def differences(candidate):
        with torch.no_grad():
            logits = candidate.eval()(batch["tokens"]).logits.flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, batch["targets"].flatten())
        return (logits - batch["logits"]).abs().max().item(), (loss - batch["loss"]).abs().item()

    logit, loss = differences(model)
    print(f"logits differ by at most {logit:.1e} (allowed {LOGIT_TOLERANCE:.0e}), "
          f"the loss {batch['loss']:.6f} by {loss:.1e} (allowed {LOSS_TOLERANCE:.0e})")
    assert logit <= LOGIT_TOLERANCE and loss <= LOSS_TOLERANCE

    def changed(**settings):
        config = copy.deepcopy(model.config)
        for key, value in settings.items():
            setattr(config, key, value)
        other = GPT2LMHeadModel(config)
        other.load_state_dict(model.state_dict())
        return other

    without_bias = changed()
    torch.nn.init.zeros_(without_bias.transformer.h[1].attn.c_proj.bias)
    for mistake, wrong in (("exact GELU", changed(activation_function="gelu")),
                           ("epsilon 1e-6", changed(layer_norm_epsilon=1e-6)),
                           ("a bias left out", without_bias)):
        logit, _ = differences(wrong)
        print(f"{mistake}: logits differ by {logit:.1e}")
        assert logit > 10 * LOGIT_TOLERANCE, mistake
    return 0


if __name__ == "__main__":
    sys.exit(main())
