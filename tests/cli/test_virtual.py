"""co2 train --virtual: workers that are threads learn what workers that are processes learn."""

import json
import signal

import pytest

from program import Started, co2, environment, wait_for

SMALL = ["--corpus", "synthetic", "--batch", "2", "--context", "32", "--eval-batches", "4", "--eval-every", "0",
         "--sample-bytes", "0", "--steps", "24"]


def summary_of(folder, *arguments):
    result = co2("train", *SMALL, "--out", folder, *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("strategy", ["ddp", "co2", "diloco"])
@pytest.mark.parametrize("workers", [2, 4])
def test_the_same_losses_as_processes_on_gloo(strategy, workers, tmp_path):
    # A low rate: in a run that is near its limit, differences of rounding grow tenfold every few steps.
    common = ["--workers", workers, "--strategy", strategy, "--local-steps", 4, "--learning-rate", 1e-3]
    real = summary_of(tmp_path / "real", *common)
    virtual = summary_of(tmp_path / "virtual", *common, "--virtual")
    assert real["launcher"] == "co2" and virtual["launcher"] == "in-process"
    # Two numbers have one sum, whoever adds them up; of four, Gloo's ring adds in another order.
    tolerance = 1e-9 if workers == 2 else 1e-3
    for name in ("validation_loss", "train_loss"):
        assert virtual[name] == pytest.approx(real[name], rel=tolerance), name
    assert virtual["validation_loss"] < virtual["validation_loss_before"]
    assert virtual["bytes_sent_per_worker"] == real["bytes_sent_per_worker"]


def test_many_workers_repeat_bit_for_bit(tmp_path):
    common = ["--workers", 16, "--virtual", "--local-steps", 3, "--steps", 10]
    first = summary_of(tmp_path / "first", *common)
    again = summary_of(tmp_path / "again", *common)
    assert first["workers"] == 16
    assert first["validation_loss"] == again["validation_loss"]
    assert (tmp_path / "first/model/model.safetensors").read_bytes() == \
        (tmp_path / "again/model/model.safetensors").read_bytes()


@pytest.mark.parametrize("zero", [0, 3])
def test_a_run_that_diverges_ends_as_any_other(zero, tmp_path):
    run = tmp_path / "run"
    result = co2("train", *SMALL, "--workers", 2, "--virtual", "--strategy", "ddp", "--zero", zero, "--optimizer",
                 "sgd", "--learning-rate", 100, "--gradient-clip", 0, "--sample-bytes", 8, "--out", run)
    assert result.returncode == 0, result.stderr
    assert "the loss is no longer finite" in result.stderr
    assert result.stderr.count("there is no sample, as what the model computes is not finite") == 1
    assert "The model writes" not in result.stdout
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 24 and summary["validation_loss"] is None and summary["sample"] == ""
    assert (run / "trace.json").exists() and (run / "model/model.safetensors").exists()


def test_a_run_shorter_than_a_round_says_so(tmp_path):
    run = ["train", *SMALL, "--model", "pico", "--workers", 2, "--virtual", "--local-steps", 100]  # and 4 fragments
    short = co2(*run, "--out", tmp_path / "short")
    assert short.returncode == 0, short.stderr
    assert short.stderr.count("the workers exchange nothing before the end") == 1
    assert "the first exchange would be after step 25 (--local-steps 100)" in short.stderr
    assert "overlap" not in short.stdout and "0 B sent per worker" in short.stdout
    enough = co2(*run, "--steps", 60, "--out", tmp_path / "enough")
    assert "exchange nothing" not in enough.stderr and "of the communication was hidden" in enough.stdout
    alone = co2(*run, "--workers", 1, "--wire", "int4", "--out", tmp_path / "alone")
    assert alone.returncode == 0 and "exchange nothing" not in alone.stderr
    assert "int4" not in alone.stdout, "what a worker tells only itself is not rounded"
    assert json.loads((tmp_path / "alone/summary.json").read_text())["recipe"]["wire"] == "plain"


def test_an_automatic_number_of_local_steps_is_refused(tmp_path):
    result = co2("train", *SMALL, "--workers", 2, "--virtual", "--out", tmp_path / "run")
    assert result.returncode == 2
    assert "virtual workers need a number of local steps" in result.stderr and "Set local_steps" in result.stderr
    assert not (tmp_path / "run").exists()
    without = co2("train", *SMALL, "--workers", 2, "--virtual", "--strategy", "ddp", "--out", tmp_path / "ddp")
    assert without.returncode == 0, without.stderr


def test_under_a_launcher_they_are_refused(tmp_path):
    env = environment(RANK="0", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="29500")
    result = co2("train", *SMALL, "--virtual", "--strategy", "ddp", "--out", tmp_path / "run", env=env)
    assert result.returncode == 2, result.stderr
    assert "virtual workers are threads of one process" in result.stderr


def test_a_failure_is_told_once_and_ends_all(tmp_path):
    result = co2("train", *SMALL, "--workers", 4, "--virtual", "--strategy", "ddp", "--init-from", tmp_path / "nothing",
                 "--out", tmp_path / "run")
    assert result.returncode == 4, result.stderr
    assert result.stderr.count("co2: error:") == 1 and "nothing" in result.stderr


def test_a_stop_saves_and_the_run_goes_on(tmp_path):
    run = tmp_path / "run"
    arguments = ["train", *SMALL[:-2], "--steps", "100000", "--workers", 3, "--virtual", "--local-steps", 4, "--out", run]
    with Started(*arguments) as started:
        wait_for(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0
                 or started.process.poll() is not None)
        started.signal(signal.SIGINT)
        code, _, err = started.finish()
    assert code == 128 + signal.SIGINT, err
    steps = json.loads((run / "summary.json").read_text())["steps"]
    result = co2("train", "--resume", run, "--steps", steps + 5)
    assert result.returncode == 0, result.stderr
    assert f"going on after step {steps}" in result.stderr
    assert json.loads((run / "summary.json").read_text())["steps"] == steps + 5
