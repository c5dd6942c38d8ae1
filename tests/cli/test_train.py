"""co2 train from its start to its files, with small real runs."""

import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys

import pytest

from program import CO2, SECONDS, Started, co2, environment, wait_for

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


def test_a_timeline_that_can_not_be_written_does_not_cost_the_model(tmp_path):
    (tmp_path / "run/trace.json").mkdir(parents=True)
    result = co2("train", *SMALL, "--workers", 2, "--steps", 5, "--out", "run", cwd=tmp_path)
    assert result.returncode == 4, result.stderr
    assert "can't write run/trace.json" in result.stderr and "gloo" not in result.stderr.lower()
    assert (tmp_path / "run/model/model.safetensors").exists()
    assert json.loads((tmp_path / "run/summary.json").read_text())["steps"] == 5


def worker_of(run, rank):
    """The process of that worker."""
    children = pathlib.Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    [pid] = [int(pid) for pid in children
             if f"RANK={rank}".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
    return pid


def test_a_worker_that_dies_takes_the_run_down(tmp_path):
    with Started("train", *SMALL, "--workers", 2, "--steps", 100000, "--out", "run", cwd=tmp_path) as run:
        wait_for(lambda: (tmp_path / "run/metrics.jsonl").exists() and
                 (tmp_path / "run/metrics.jsonl").stat().st_size > 0 or run.process.poll() is not None)
        os.kill(worker_of(run, rank=1), signal.SIGKILL)
        code, _, err = run.finish()
    assert code == 128 + signal.SIGKILL, err
    assert "co2: worker 1 was killed by signal 9 (Killed); ending the others" in err


def test_a_signal_to_one_worker_is_the_reason_of_all(tmp_path):
    with Started("launch", "-n", 3, "--", "sh", "-c", '"$@"; echo code $?', "sh", CO2, "train", *SMALL, "--steps",
                 100000, "--out", "run", cwd=tmp_path) as run:
        wait_for(lambda: (tmp_path / "run/metrics.jsonl").exists() and
                 (tmp_path / "run/metrics.jsonl").stat().st_size > 0 or run.process.poll() is not None)
        [worker] = [pid for pid in run.alive() if os.path.samefile(f"/proc/{pid}/exe", CO2) and
                    b"RANK=1" in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
        os.kill(worker, signal.SIGTERM)
        _, out, err = run.finish()
    assert sorted(re.findall(r"code \d+", out)) == [f"code {128 + signal.SIGTERM}"] * 3, err
    assert json.loads((tmp_path / "run/summary.json").read_text())["interrupted"] is True


def different_workers(tmp_path, first, second, more=()):
    """Two workers of one run, with options of their own."""
    script = f'case $RANK in 0) exec "$@" {first};; *) exec "$@" {second};; esac'
    return co2("launch", "-n", 2, "--", "sh", "-c", script, "sh", CO2, "train", *SMALL, "--out", "run", *more,
               cwd=tmp_path)


@pytest.mark.parametrize("option, first, second", [
    ("steps", "--steps 40", "--steps 30"),
    ("seed", "--seed 1", "--seed 2"),
    ("learning-rate", "--learning-rate 0.001", "--learning-rate 0.002"),
    ("schedule", "--schedule constant", "--schedule linear"),
    ("eval-every", "--eval-every 3", "--eval-every 4"),
    ("strategy", "--strategy co2", "--strategy ddp"),
    ("corpus", "--corpus synthetic", "--corpus gutenberg"),
    ("init-from", "no --init-from", "--init-from model"),
    ("nesterov", "--no-nesterov", "--nesterov"),
])
def test_workers_with_different_options_all_say_which(tmp_path, option, first, second):
    result = different_workers(tmp_path, "" if first.startswith("no ") else first, second)
    assert result.returncode == 3, result.stderr
    for rank, value in ((0, first), (1, second)):
        assert f"rank {rank} has {value}, and others have not" in result.stderr, result.stderr
    assert not (tmp_path / "run").exists()


def test_workers_of_different_tasks_say_so(tmp_path):
    script = 'case $RANK in 0) exec "$@" gpt;; *) exec "$@" image;; esac'
    result = co2("launch", "-n", 2, "--", "sh", "-c", script, "sh", CO2, "train", cwd=tmp_path)
    assert result.returncode == 3, result.stderr
    for rank, task in enumerate(("gpt", "image")):
        assert f"rank {rank} has the task {task}, and others have not" in result.stderr, result.stderr


def test_what_is_about_a_machine_may_differ(tmp_path):
    result = different_workers(tmp_path, "--batch 2 --threads 1 --no-pin --collective-timeout 60",
                               "--batch 1 --threads 2 --out elsewhere", ["--steps", 4])
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "run/summary.json").exists() and not (tmp_path / "elsewhere").exists()


def test_workers_join_under_torchrun(tmp_path):
    torchrun = pathlib.Path(sys.executable).with_name("torchrun")
    if not torchrun.exists():
        pytest.skip("no torchrun here")
    result = subprocess.run([torchrun, "--standalone", "--nproc-per-node", "2", "--no-python", CO2, "train", *SMALL,
                             "--steps", "4", "--out", "run"], cwd=tmp_path, env=environment(), capture_output=True,
                            text=True, timeout=SECONDS)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "run/config.json").read_text())["workers"] == 2
    assert result.stdout.count("validation loss") == 1


def test_workers_join_under_mpirun(tmp_path):
    mpirun = shutil.which("mpirun")
    if not mpirun:
        pytest.skip("no mpirun here")
    as_root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    result = subprocess.run([mpirun, "-n", "2", "--oversubscribe", *as_root, CO2, "train", *SMALL, "--steps", "4",
                             "--out", "run"], cwd=tmp_path, env=environment(), capture_output=True, text=True,
                            timeout=SECONDS)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "run/config.json").read_text())["workers"] == 2
    assert result.stdout.count("validation loss") == 1


def test_workers_join_under_co2_launch(tmp_path):
    result = co2("launch", "-n", 2, "--", CO2, "train", *SMALL, "--steps", 4, "--out", "run", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    text = "".join(line.removeprefix("[0] ") for line in result.stdout.splitlines())
    assert json.loads(text) == json.loads((tmp_path / "run/summary.json").read_text())


def without_screen(how):
    if how == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
    else:
        os.close(2)


@pytest.mark.parametrize("how", ["full", "closed"])
def test_a_run_needs_no_screen(how, tmp_path):
    result = subprocess.run([CO2, "train", *SMALL, "--workers", "1", "--steps", "5", "--out", "run"], cwd=tmp_path,
                            env=environment(), stdout=subprocess.PIPE, timeout=SECONDS,
                            preexec_fn=lambda: without_screen(how))
    assert result.returncode == 0
    assert json.loads((tmp_path / "run/summary.json").read_text())["interrupted"] is False
    for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines():
        json.loads(line)


def test_a_terminal_that_goes_away_ends_a_run_that_saves(tmp_path):
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(CO2, [CO2, "train", *SMALL, "--workers", "2", "--steps", "100000", "--out", str(tmp_path / "run")],
                  environment())
    metrics = tmp_path / "run/metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert json.loads((tmp_path / "run/summary.json").read_text())["interrupted"] is True
