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
