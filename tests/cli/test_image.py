"""The task image, as its user meets it: whole runs of the program on images that it makes up."""

import json

import pytest

from program import co2

SMALL = ["image", "--images", "synthetic", "--batch", 8, "--eval-batches", 8, "--eval-every", 0, "--checkpoint-every", 6]


def printed(*arguments):
    return json.loads(co2("train", "--print-config", *arguments).stdout)


def test_defaults_are_those_of_the_task(tmp_path):
    config = printed("image")
    assert (config["optimizer"], config["learning_rate"], config["weight_decay"]) == ("sgd", 0.1, 5e-4)
    assert (config["gradient_clip"], config["batch"], config["eval_batches"]) == (0, 32, 0)
    assert (config["images"], config["model"], config["augment"]) == ("fashion-mnist", "resnet-8", "auto")
    assert printed("image", "--optimizer", "adamw")["learning_rate"] == 0.002
    gpt = printed()
    assert (gpt["optimizer"], gpt["weight_decay"], gpt["eval_batches"]) == ("adamw", 0.1, 16)
    # What is null in a file is as if it were not there: the task's own.
    (tmp_path / "run.json").write_text('{"task": "image", "optimizer": null, "weight_decay": null}')
    again = printed("--config", tmp_path / "run.json")
    assert (again["optimizer"], again["weight_decay"]) == ("sgd", 5e-4)


@pytest.mark.parametrize("layout", [["--strategy", "ddp"], ["--strategy", "co2", "--local-steps", 3],
                                    ["--strategy", "ddp", "--zero", 1], ["--strategy", "ddp", "--zero", 2],
                                    ["--strategy", "ddp", "--zero", 3], ["--island-size", 2, "--zero", 3]])
def test_two_workers_train_in_every_layout(layout, tmp_path):
    result = co2("train", *SMALL, *layout, "--workers", 2, "--steps", 12, "--out", tmp_path / "run")
    assert result.returncode == 0, result.stderr
    for row in ("image resnet-8, 77.8 k parameters", "accuracy ", "images/s over all workers", "degrees"):
        assert row in result.stdout, row
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert 0 <= summary["metrics"]["accuracy"] <= 1
    assert (tmp_path / "run/predictions.png").read_bytes().startswith(b"\x89PNG")
    exported = co2("export", tmp_path / "run", "--out", tmp_path / "exported")
    assert exported.returncode == 0, exported.stderr
    assert (tmp_path / "exported/model.safetensors").stat().st_size == \
        (tmp_path / "run/model/model.safetensors").stat().st_size
    again = co2("train", *SMALL, "--workers", 1, "--steps", 2, "--init-from", tmp_path / "exported", "--out",
                tmp_path / "again")
    assert again.returncode == 0, again.stderr


def test_a_run_that_diverges_guesses_nothing(tmp_path):
    run = tmp_path / "run"
    # Batch norm survives much: a decay of more than all turns weights over, and makes them larger in every step.
    result = co2("train", *SMALL, "--workers", 2, "--virtual", "--strategy", "ddp", "--steps", 20, "--learning-rate",
                 100, "--weight-decay", 1, "--rate-factor", 1000, "--out", run)
    assert result.returncode == 0, result.stderr
    assert "there is no sample, as what the model computes is not finite" in result.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert summary["metrics"]["accuracy"] is None and summary["sample"] == ""
    assert not (run / "predictions.png").exists() and (run / "model/model.safetensors").exists()


def test_plan_and_doctor_know_it():
    plan = json.loads(co2("plan", "memory", "image", "--images", "cifar-10", "--model", "resnet-20", "--json").stdout)
    assert plan["parameters"] == 272474
    one_copy = 4 * plan["parameters"]
    assert plan["memory"]["inner_state"] == pytest.approx(one_copy, rel=0.01), "SGD keeps one momentum"
    found = co2("doctor", "image", "--workers", 2, "--batch", 4)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "image resnet-8" in found.stdout and "images" in found.stdout and "tokens" not in found.stdout


@pytest.mark.parametrize("arguments, message", [
    (["--images", "fashon-mnist"], "did you mean 'fashion-mnist'?"),
    (["--images", "/nowhere"], "neither a known name nor a file or folder that exists"),
    (["--augment", "flip"], "--augment 'flip' is not known"),
    (["--corpus", "gutenberg"], "--corpus is no option of the task image: it is one of gpt"),
    (["--model", "resnet-21"], "did you mean 'resnet-20'?"),
])
def test_mistakes_are_named(arguments, message):
    result = co2("train", "image", *arguments)
    assert result.returncode in (2, 4) and message in result.stderr, result.stderr
