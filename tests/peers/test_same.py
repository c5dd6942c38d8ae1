"""The peers' model, data and optimizer are ours: on exported weights, by the fixed numbers of our own tests, and by the
check that the lab makes before each comparison, which must also notice a difference."""

import os
import stat
import subprocess
import sys

import pytest
import running
import torch
from data import Corpus, DataError, Windows, load_corpus, mixed
from gpt import Gpt, GptConfig, preset
from safetensors.torch import load_file

LOGIT_TOLERANCE = 3e-5  # as in tests/train/hf_parity_test.py, which says why


def numbered() -> Corpus:
    """As in tests/train/windows_test.cc: the value of a byte tells its place (modulo 250)."""
    return Corpus("numbered", "", bytes(i % 250 for i in range(1000)))


def test_model_gives_the_logits_and_the_loss_that_we_compute(tmp_path):
    subprocess.run([os.environ["CO2_EXPORT_TOOL"], tmp_path], check=True, timeout=running.SECONDS)
    batch = load_file(tmp_path / "batch.safetensors")
    model = Gpt(GptConfig(layers=3, heads=4, width=64, context=48), seed=1)
    model.load(tmp_path / "model" / "model.safetensors")
    with torch.no_grad():
        logits, loss = model.logits(batch["tokens"]), model(batch["tokens"], batch["targets"])
        assert (logits - batch["logits"]).abs().max() <= LOGIT_TOLERANCE
        assert abs(loss - batch["loss"]) <= 1e-5
        for block in model.transformer.h:
            block.ln_1.eps = 1e-6  # the tolerance is tight enough to see an easy mistake
        assert (model.logits(batch["tokens"]) - batch["logits"]).abs().max() > 10 * LOGIT_TOLERANCE


def test_weights_of_another_model_are_refused(tmp_path):
    subprocess.run([os.environ["CO2_EXPORT_TOOL"], tmp_path], check=True, timeout=running.SECONDS)
    with pytest.raises(ValueError, match="does not hold the weights of this model"):
        Gpt(preset("nano"), seed=1).load(tmp_path / "model" / "model.safetensors")


@pytest.mark.parametrize("model", ["nano", "tiny"])
def test_fragments_hold_every_parameter_once_and_are_of_about_equal_size(model):
    whole = Gpt(preset(model), seed=1)
    fragments = whole.fragments(4)
    found = [id(p) for fragment in fragments for p in fragment.parameters()]
    assert sorted(found) == sorted(id(p) for p in whole.parameters())
    sizes = [sum(p.numel() for p in fragment.parameters()) for fragment in fragments]
    assert max(sizes) < 1.5 * min(sizes)
    with pytest.raises(ValueError, match="can't be cut"):
        whole.fragments(100)


def test_draws_are_those_of_our_own_tests():
    tokens, targets = Windows(numbered(), 0.1, 20).training(1, 0, 0, 8)
    assert tokens[0][0] == 194
    assert torch.equal(targets, (tokens + 1) % 250)
    assert mixed() == 0 and mixed(0) == 0xE220A8397B1DCDAF  # SplitMix64's first number from the state 0


def test_workers_together_validate_the_same_windows_for_any_number_of_them():
    windows = Windows(numbered(), 0.2, 9)

    def starts(size):
        batches = [b for rank in range(size) for b in windows.validation(4, 3, rank, size)]
        return sorted(sample[0].item() for tokens, _ in batches for sample in tokens)

    assert len(set(starts(1))) == 12
    for size in (2, 3, 4, 7):
        assert starts(size) == starts(1)


def test_a_text_that_is_missing_or_too_short_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("CO2_DATA", str(tmp_path))
    for name, message in (("gutenberg", "fetches it"), ("synthetic", "text file"), ("no-such", "neither")):
        with pytest.raises(DataError, match=message):
            load_corpus(name)
    (tmp_path / "sotu-0123456789abcdef.txt").write_text("something else")
    with pytest.raises(DataError, match="damaged"):
        load_corpus("sotu")
    with pytest.raises(DataError, match="too short: its validation part has 100 bytes"):
        Windows(numbered(), 0.1, 100)


def test_check_finds_the_peers_equal_to_the_program(tmp_path):
    config = running.write_config(tmp_path, "--schedule", "linear", "--accumulation-steps", "2")
    done = running.train(sys.executable, "--check", "--config", config, "--out", tmp_path, "--co2", running.CO2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("relative difference") >= 4


@pytest.mark.parametrize("change, noticed", [("--seed 2", "initial weights"), ("--beta2 0.9", "training loss"),
                                             ("--validation-share 0.06", "validation loss")])
def test_check_notices_a_difference(tmp_path, change, noticed):
    other = tmp_path / "other-co2"
    other.write_text(f'#!/bin/sh\nexec "{running.CO2}" "$@" {change}\n')
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    config = running.write_config(tmp_path)
    done = running.train(sys.executable, "--check", "--config", config, "--out", tmp_path, "--co2", other)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "not the same as co2" in done.stdout and noticed in done.stdout.splitlines()[-1]
