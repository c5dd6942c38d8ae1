"""co2 train from its start to its files, with small real runs."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from program import CO2, Started, co2, environment, wait_for

SMALL = ["--corpus", "synthetic", "--batch", "2", "--context", "32", "--eval-batches", "2", "--eval-every", "0",
         "--sample-bytes", "10"]


def test_two_workers_train_and_leave_their_files(tmp_path):
    result = co2("train", *SMALL, "--workers", 2, "--steps", 24, "--local-steps", 6, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "validation loss" in result.stdout
    [out] = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"gpt-nano-co2-\d{8}-\d{6}", out.name)
    for name in ("config.json", "metrics.jsonl", "summary.json", "trace.json", "model/model.safetensors"):
        assert (out / name).stat().st_size > 0
    config = json.loads((out / "config.json").read_text())
    assert config["workers"] == 2 and config["local_steps"] == 6 and config["fragments"] == 4
    assert config["out"] is None, "a run from this file gets a folder of its own"


def test_a_runs_config_gives_the_same_run_again(tmp_path):
    first = co2("train", *SMALL, "--workers", 1, "--steps", 5, "--out", "first", "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    again = co2("train", "--config", "first/config.json", "--out", "again", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(first.stdout) == json.loads((tmp_path / "first" / "summary.json").read_text())
    assert (tmp_path / "first/model/model.safetensors").read_bytes() == \
        (tmp_path / "again/model/model.safetensors").read_bytes()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_saves_what_there_is(workers, number, tmp_path):
    with Started("train", *SMALL, "--workers", workers, "--steps", 100000, "--out", "run", cwd=tmp_path) as run:
        wait_for(lambda: (tmp_path / "run/metrics.jsonl").exists() and
                 (tmp_path / "run/metrics.jsonl").stat().st_size > 0 or run.process.poll() is not None)
        run.signal(number)
        code, _, err = run.finish()
    assert code == 128 + number, err
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["interrupted"] is True
    assert (tmp_path / "run/model/model.safetensors").exists()


def test_a_worker_that_dies_takes_the_run_down(tmp_path):
    with Started("train", *SMALL, "--workers", 2, "--steps", 100000, "--out", "run", cwd=tmp_path) as run:
        wait_for(lambda: (tmp_path / "run/metrics.jsonl").exists())
        children = pathlib.Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
        os.kill(int(children[1]), signal.SIGKILL)
        code, _, err = run.finish()
    assert code != 0
    assert "co2: " in err


def test_workers_join_under_torchrun(tmp_path):
    torchrun = pathlib.Path(sys.executable).with_name("torchrun")
    if not torchrun.exists():
        pytest.skip("no torchrun here")
    result = subprocess.run([torchrun, "--standalone", "--nproc-per-node", "2", "--no-python", CO2, "train", *SMALL,
                             "--steps", "4", "--out", "run"], cwd=tmp_path, env=environment(), capture_output=True,
                            text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "run/config.json").read_text())["workers"] == 2
    assert result.stdout.count("validation loss") == 1


def test_workers_join_under_co2_launch(tmp_path):
    result = co2("launch", "-n", 2, "--", CO2, "train", *SMALL, "--steps", 4, "--out", "run", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    text = "".join(line.removeprefix("[0] ") for line in result.stdout.splitlines())
    assert json.loads(text) == json.loads((tmp_path / "run/summary.json").read_text())
