"""ZeRO and islands over real sockets: every stage trains the same model, holds what `co2 plan memory` says, and sends
what the formulas say."""

import json

import pytest
import torch
from program import co2
from safetensors.torch import load_file

TRAINING = ["--model", "nano", "--corpus", "synthetic", "--batch", 1, "--context", 32, "--eval-batches", 3,
            "--sample-bytes", 0]
LAYOUT = ["--workers", 4, "--island-size", 2, "--strategy", "co2", "--local-steps", 6, "--fragments", 1, "--bucket-bytes", 600000,
          "--optimizer", "sgd"]
PLAIN = ["--wire", "plain"]


def train(folder, *options):
    result = co2("train", *TRAINING, *LAYOUT, "--steps", 48, "--learning-rate", 0.03, "--checkpoint-every", 19,
                 *options, "--out", folder)
    assert result.returncode == 0, result.stderr
    return json.loads((folder / "summary.json").read_text()), load_file(folder / "model/model.safetensors")


def plan(*options):
    result = co2("plan", "memory", "--model", "nano", "--context", 32, *LAYOUT, *options, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_plan_says_what_it_assumes():
    command = ["plan", "memory", "--model", "nano", "--workers", 4]
    assumed = json.loads(co2(*command, "--json").stdout)
    assert (assumed["task"], assumed["model"], assumed["wire"]) == ("gpt", "nano", "int4")
    assert (assumed["local_steps"], assumed["local_steps_assumed"], assumed["fragments"]) == (12, True, 4)
    assert "12 steps are assumed here (--local-steps)" in co2(*command).stdout
    given = json.loads(co2(*command, "--local-steps", 6, "--fragments", 2, "--json").stdout)
    assert (given["local_steps"], given["local_steps_assumed"], given["fragments"]) == (6, False, 2)
    assert "assumed" not in co2(*command, "--local-steps", 6).stdout
    assert "local_steps" not in json.loads(co2(*command, "--strategy", "ddp", "--json").stdout)


def test_every_stage_over_sockets(tmp_path):
    reference, model = train(tmp_path / "0", *PLAIN)
    for stage in (1, 2, 3):
        summary, same = train(tmp_path / str(stage), "--zero", stage, *PLAIN)
        # Gloo adds up gradients in another order for an all-reduce than for a reduce-scatter.
        for loss in ("train_loss", "validation_loss"):
            assert summary[loss] == pytest.approx(reference[loss], rel=1e-5)
        for name, values in model.items():
            assert torch.allclose(same[name], values, atol=1e-5), name
        compare(summary, plan("--zero", stage, *PLAIN))
    compare(reference, plan(*PLAIN))


@pytest.mark.parametrize("wire, within", [("int8", 0.01), ("int4", 0.01), ("int2", 0.03)])
def test_blocks_between_islands(tmp_path, wire, within):
    """Shards of another stage are cut into other blocks: the same numbers but for rounding, which is kept."""
    reference, _ = train(tmp_path / "plain", *PLAIN)
    for stage in (0, 3):
        summary, _ = train(tmp_path / str(stage), "--zero", stage, "--wire", wire, "--checksum")
        assert summary["recipe"]["wire"] == wire
        assert summary["validation_loss"] == pytest.approx(reference["validation_loss"], rel=within)
        compare(summary, plan("--zero", stage, "--wire", wire))


def test_bfloat16(tmp_path):
    reference, _ = train(tmp_path / "plain", "--zero", 1)
    for stage in (1, 3):
        summary, model = train(tmp_path / str(stage), "--zero", stage, "--compute", "bfloat16")
        assert summary["train_loss"] == pytest.approx(reference["train_loss"], rel=0.02)
        assert all(values.dtype == torch.float32 for values in model.values())
        assert any((values != values.bfloat16()).any() for values in model.values()), "the weights themselves"
        compare(summary, plan("--zero", stage, "--compute", "bfloat16"))


def test_agreed_moments(tmp_path):
    options = ["--zero", 1, "--optimizer", "adamw", "--agree-moments", 6]
    planned = plan(*options)
    compare(train(tmp_path / "run", "--learning-rate", 0.001, *options)[0], planned)
    without = plan(*options, "--agree-moments", 0)
    assert planned["memory"]["communication"] > without["memory"]["communication"] + planned["parameters"]


def compare(summary, planned):
    """Within 5 %, and what alignment and bookkeeping add to a model as small as this."""
    for category, bytes_planned in planned["memory"].items():
        if category != "total":
            measured = summary["memory"][category]
            assert measured == pytest.approx(bytes_planned, rel=0.05, abs=100_000), (category, planned)
    # What is still in flight after the last step is not counted.
    sent = planned["bytes_per_step"]["island"] + planned["bytes_per_step"]["across"]
    assert summary["bytes_sent_per_worker_and_step"] == pytest.approx(sent, rel=0.05)


def test_a_worker_alone_has_nothing_to_shard(tmp_path):
    result = co2("train", *TRAINING, "--workers", 1, "--local-steps", 4, "--steps", 8, "--zero", 2, "--out", tmp_path / "o")
    assert result.returncode == 0, result.stderr
    assert "zero 2 has nothing to shard: there is only one worker" in result.stdout + result.stderr


@pytest.mark.parametrize("options, parts", [
    (["--workers", 3, "--island-size", 2], ["island_size = 2", "3 workers", "must divide"]),
    (["--workers", 4, "--island-size", 2, "--strategy", "ddp"], ["island_size = 2", "one island of all 4 workers"]),
    (["--zero", 4], ["--zero", "0 to 3"]),
    (["--workers", 2, "--zero", 2], ["zero = 2 is not allowed", "islands of one worker", "island_size"]),
    (["--workers", 2, "--island-size", 2, "--compute", "bfloat16"], ["compute = bfloat16", "zero = 1"]),
    (["--compute", "float8"], ["--compute", "bfloat16"]),
])
@pytest.mark.parametrize("command", [["train", *TRAINING], ["plan", "memory"]])
def test_bad_input(command, options, parts):
    result = co2(*command, *options)
    assert result.returncode == 2, result.stderr
    assert all(part in result.stderr for part in parts), result.stderr


def test_the_whole_model_is_never_on_one_worker(tmp_path):
    """At the start, in training and at the end: the largest resident size would not have room for it."""
    layout = ["--model", "small", "--context", 32, "--workers", 4, "--strategy", "ddp", "--zero", 3,
              "--checkpoint-every", 0]
    result = co2("train", *layout, "--corpus", "synthetic", "--batch", 1, "--eval-batches", 1, "--sample-bytes", 4,
                 "--steps", 2, "--out", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    planned = json.loads(co2("plan", "memory", *layout, "--json").stdout)
    whole = 4 * planned["parameters"]
    for worker in summary["per_worker"]:
        peak = 1e6 * worker["peak_megabytes"]
        assert peak < planned["resident_bytes"]
        assert peak < planned["memory"]["total"] + whole, "no room for another copy, even if the program took nothing"
    assert len(summary["sample"]) == 4
    model = load_file(tmp_path / "run/model/model.safetensors")
    assert sum(values.numel() for values in model.values()) == planned["parameters"]
