"""co2 study as its user meets it: real runs, a runner that is killed at any moment, messages."""

import json
import os
import pathlib
import re
import signal

import pytest

from program import Started, co2, wait_for

STUDIES = pathlib.Path(__file__).resolve().parents[2] / "studies"

SMALL = """
name = "small"
seeds = [1, 2]
reference = "ddp"
[common]
corpus = "synthetic"
context = 32
batch = 2
steps = STEPS
workers = 2
eval_batches = 2
eval_every = 0
sample_bytes = 0
[tune]
seeds = [101]
learning_rate = [0.002, 0.004]
[link]
rate = "100mbit"
[[row]]
name = "ddp"
strategy = "ddp"
[[row]]
name = "co2"
strategy = "co2"
[row.grid]
local_steps = [2, 4]
"""
RUNS = 3 * (2 + 2)  # rows, of two trials and two seeds each


def write(folder, text=SMALL, steps=12):
    path = folder / "study.toml"
    path.write_text(text.replace("STEPS", str(steps)))
    return path


def lines_of(folder):
    path = folder / "out/results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_study_from_its_file_to_its_report(tmp_path):
    study = write(tmp_path)
    out = tmp_path / "out"
    result = co2("study", "run", study, "--out", out, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert [row["label"] for row in report["rows"]] == ["ddp", "co2 local_steps=2", "co2 local_steps=4"]
    assert report["runs"] == RUNS and f"{RUNS}/{RUNS}" in result.stderr
    lines = lines_of(tmp_path)
    assert len(lines) == RUNS and len({line["key"] for line in lines}) == RUNS
    for line in lines:
        assert line["config"]["virtual"] is True and line["version"] and line["host"] and line["wall_seconds"] > 0
        assert line["metrics"]["validation_loss"] > 0 and 0 < len(line["curve"]) <= 100
    assert list((out / "runs").iterdir()) == [], "what was recorded needs no files any more"

    # The mean is of what is recorded, and the test says on how many seeds it rests.
    co2_row = report["rows"][1]
    chosen = co2_row["chosen"]["learning_rate"]
    losses = [line["metrics"]["validation_loss"] for line in lines
              if line["config"]["strategy"] == "co2" and line["config"]["local_steps"] == 2
              and line["config"]["learning_rate"] == chosen and line["config"]["seed"] in (1, 2)]
    assert co2_row["mean"] == pytest.approx(sum(losses) / 2)
    assert co2_row["test"]["pairs"] == 2 and len(co2_row["trials"]) == 2
    assert co2_row["step_seconds"] > 0

    # Nothing is run twice.
    again = co2("study", "run", study, "--out", out)
    assert again.returncode == 0 and f"{RUNS} runs, {RUNS} of them done before" in again.stderr
    assert len(lines_of(tmp_path)) == RUNS

    shown = co2("study", "report", study, "--out", out, "--svg", tmp_path / "small.svg")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"co2 local_steps=4 +2 +\d\.\d{4} ± \d\.\d{4} +[+-]\d+\.\d\d %", shown.stdout), shown.stdout
    assert "paired t-test" in shown.stdout
    assert (tmp_path / "small.svg").read_text().count("<polyline") == 6
    markdown = co2("study", "report", study, "--out", out, "--markdown")
    assert "| co2 local_steps=4 | 2 |" in markdown.stdout


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_study_that_is_ended_goes_on_without_losing_or_repeating_a_run(number, tmp_path):
    study = write(tmp_path)
    for moment in (1, 4):  # as soon as so many results are there
        with Started("study", "run", study, "--out", tmp_path / "out") as runner:
            wait_for(lambda: len(lines_of(tmp_path)) >= moment or runner.process.poll() is not None)
            runner.signal(number)
            code, _, err = runner.finish()  # which also proves that no run was left behind
        assert code == (128 + number if number == signal.SIGINT else -number), err
    before = lines_of(tmp_path)
    assert 4 <= len(before) < RUNS
    with open(tmp_path / "out/results.jsonl", "a") as file:  # as if the machine had gone down while it was written
        file.write('{"key": "0123')
    result = co2("study", "run", study, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "its last line was cut off" in result.stderr
    lines = lines_of(tmp_path)
    assert lines[:len(before)] == before
    assert len(lines) == RUNS and len({line["key"] for line in lines}) == RUNS


def test_two_runners_exclude_each_other(tmp_path):
    study = write(tmp_path, steps=3000)
    with Started("study", "run", study, "--out", tmp_path / "out") as runner:
        wait_for(lambda: (tmp_path / "out/runs").exists() or runner.process.poll() is not None)
        second = co2("study", "run", study, "--out", tmp_path / "out")
        assert second.returncode == 4 and "another co2 study is at work in" in second.stderr
        runner.signal(signal.SIGTERM)
        code, _, err = runner.finish()
    assert code == 128 + signal.SIGTERM and "the same command goes on" in err


def test_a_run_that_fails_is_recorded_and_the_others_go_on(tmp_path):
    text = SMALL.replace("[tune]\nseeds = [101]\nlearning_rate = [0.002, 0.004]\n", "")
    broken = '[[row]]\nname = "broken"\nstrategy = "ddp"\ninit_from = "/there/is/nothing"\n'
    study = write(tmp_path, text + broken)
    result = co2("study", "run", study, "--out", tmp_path / "out")
    assert result.returncode == 1
    assert "broken, seed 1: failed" in result.stderr and "/there/is/nothing" in result.stderr
    assert "2 of 8 runs failed" in result.stderr and "broken: 2 runs failed" in result.stdout
    failures = [line["failure"] for line in lines_of(tmp_path) if "failure" in line]
    assert len(failures) == 2 and "exit code 4" in failures[0] and "/there/is/nothing" in failures[0]
    again = co2("study", "run", study, "--out", tmp_path / "out")
    assert again.returncode == 1 and "8 runs, 6 of them done before" in again.stderr


def test_a_run_that_diverges_has_not_failed(tmp_path):
    text = SMALL.replace("[tune]\nseeds = [101]\nlearning_rate = [0.002, 0.004]\n", "")
    text = text.replace("sample_bytes = 0\n", "")
    wild = '[[row]]\nname = "wild"\nstrategy = "ddp"\noptimizer = "sgd"\nlearning_rate = 100.0\ngradient_clip = 0\n'
    study = write(tmp_path, text + wild)
    result = co2("study", "run", study, "--out", tmp_path / "out", "--json")
    assert result.returncode == 0, result.stderr
    row = json.loads(result.stdout)["rows"][3]
    assert (row["label"], row["failed"], row["diverged"]) == ("wild", 0, 2)
    shown = co2("study", "report", study, "--out", tmp_path / "out")
    assert "2 diverged" in shown.stdout and "failed" not in shown.stdout


def test_a_row_of_which_no_trial_succeeds_is_a_failure(tmp_path):
    text = SMALL[:SMALL.index("[[row]]\nname = \"co2\"")] + 'init_from = "/there/is/nothing"\n'
    result = co2("study", "run", write(tmp_path, text), "--out", tmp_path / "out")
    assert result.returncode == 1
    assert "ddp: no trial succeeded, so there is nothing to run it with" in result.stderr
    assert "no trial succeeded" in result.stdout and len(lines_of(tmp_path)) == 2


def test_a_run_that_is_killed_is_a_failure(tmp_path):
    study = write(tmp_path, steps=3000)
    with Started("study", "run", study, "--out", tmp_path / "out", "--jobs", 1) as runner:
        wait_for(lambda: len(runner.alive()) == 2 or runner.process.poll() is not None)
        [child] = [pid for pid in runner.alive() if pid != runner.process.pid]
        os.kill(child, signal.SIGKILL)
        wait_for(lambda: lines_of(tmp_path) or runner.process.poll() is not None)
        runner.signal(signal.SIGINT)
        runner.finish()
    assert "killed by signal 9" in lines_of(tmp_path)[0]["failure"]


@pytest.mark.parametrize("change, message", [
    (("batch = 2", "batsh = 2"), "unknown option 'batsh' (STUDY, line 8); did you mean 'batch'?"),
    (("batch = 2", "batch = -2"), "batch = -2 is not allowed (STUDY, line 8)"),
    (('strategy = "co2"', 'strategy = "co3"'), "strategy 'co3' is not known"),
    (("local_steps = [2, 4]", 'local_steps = ["auto"]'), "virtual workers need a number of local steps"),
    (("batch = 2", "batch = 2\nisland_size = 3"), "island_size"),
    (("seeds = [101]", "seeds = [1]"), "can't be judged by it"),
    (('strategy = "co2"', 'strategy = "co2"\noptimizer = "sgd"\nagree_moments = 4'),
     "row 'co2 local_steps=2': agree_moments = 4 has no meaning for the optimizer 'sgd'"),
    (("seeds = [1, 2]", 'seeds = [1, 2]\nmetric = "accuracy"'),
     "metric = 'accuracy' in STUDY is no metric of the task gpt, which row 'ddp' trains. It has: validation_loss, "),
])
def test_a_broken_study_is_refused_before_anything_runs(change, message, tmp_path):
    study = write(tmp_path, SMALL.replace(*change))
    for command in (["plan", study], ["run", study, "--out", tmp_path / "out"]):
        result = co2("study", *command)
        assert result.returncode == 2, result.stderr
        assert message.replace("STUDY", str(study)) in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_plan_tells_how_many_and_how_long(tmp_path):
    result = co2("study", "plan", write(tmp_path), "--json")
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert plan["runs"] == RUNS and len(plan["rows"]) == 3 and plan["seconds"] > 0


@pytest.mark.parametrize("name", sorted(path.name for path in STUDIES.glob("*.toml")))
def test_the_studies_that_come_along_are_valid(name, tmp_path):
    result = co2("study", "report", STUDIES / name, "--out", tmp_path / "none")
    assert result.returncode == 0, result.stderr
    assert "are missing" in result.stdout


@pytest.mark.parametrize("arguments, message", [
    ([], "say what to do: co2 study plan"),
    (["run"], "a study file is missing"),
    (["run", "nothing.toml"], "can't read nothing.toml"),
    (["report", "x.toml", "--json", "--markdown"], "contradict each other"),
    (["run", "x.toml", "--jobs", "-1"], "--jobs -1 is not allowed"),
    (["run", "x.toml", "--jobs", "0"], "--jobs 0 is not allowed"),
])
def test_a_wrong_command_is_explained(arguments, message, tmp_path):
    result = co2("study", *arguments, cwd=tmp_path)
    assert result.returncode in (2, 4)
    assert message in result.stderr
