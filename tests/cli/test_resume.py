"""Runs that end at any moment, and go on: to the same bytes, with every line of metrics.jsonl there once."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

import pytest

from program import CO2, Started, co2, wait_for

# 50 or more for a thorough look: CO2_KILLS=50 (make test-kill).
KILLS = int(os.environ.get("CO2_KILLS", 8))
TRAINING = ["--corpus", "synthetic", "--batch", 2, "--context", 32, "--local-steps", 3, "--fragments", 2,
            "--eval-every", 8, "--eval-batches", 2, "--sample-bytes", 0, "--workers", 2]


def train(folder, *more, **options):
    return co2("train", *TRAINING, "--out", folder, *more, **options)


def metrics(run):
    """Without what depends on the clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["train_loss"], line["train_loss_step"], line["validation_loss"], line["learning_rate"])
            for line in lines]


def weights(run):
    return (run / "model/model.safetensors").read_bytes()


def steps_saved(run):
    checkpoints = run / "checkpoints"
    return sorted(int(entry.name.removeprefix("step-")) for entry in checkpoints.iterdir()
                  if entry.name.startswith("step-")) if checkpoints.exists() else []


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The undisturbed run."""
    run = tmp_path_factory.mktemp("whole") / "run"
    result = train(run, "--steps", 40, "--checkpoint-every", 0)
    assert result.returncode == 0, result.stderr
    assert not (run / "checkpoints").exists()
    return run


def test_a_run_that_is_killed_again_and_again_ends_like_one_that_is_not(tmp_path, whole):
    """All workers, one of them, or the one that started them; whenever: while loading, training, saving, ending."""
    rng = random.Random(7)
    run = tmp_path / "run"
    arguments = ["train", *TRAINING, "--out", run, "--steps", 40, "--checkpoint-every", 2]
    began = time.monotonic()
    result = co2(*arguments)
    assert result.returncode == 0, result.stderr
    usual = time.monotonic() - began
    assert weights(run) == weights(whole), "checkpoints change nothing"
    shutil.rmtree(run)
    resumed = []
    for kill in range(KILLS):
        with Started(*arguments) as started:
            time.sleep(rng.uniform(0.1, 1.1) * usual)
            pids = started.alive()
            victims = {0: pids, 1: rng.sample(pids, min(1, len(pids)))}[kill % 2]
            for pid in victims:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            _, _, said = started.finish()
        for line in said.splitlines():
            if "going on after step" in line:
                resumed.append(int(line.split()[-1]))
        if (run / "config.json").exists():
            arguments = ["train", "--resume", run]
    result = co2("train", "--resume", run)
    assert result.returncode == 0, result.stderr
    assert weights(run) == weights(whole)
    assert metrics(run) == metrics(whole)
    assert resumed == sorted(resumed), "no life of it lost what an earlier one had saved"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_is_at_work_is_left_alone(tmp_path, workers):
    """A requeued job may begin before the one that it follows has ended."""
    run = tmp_path / "run"
    with Started("train", *TRAINING, "--workers", workers, "--out", run, "--steps", 100000) as started:
        wait_for(lambda: (run / "metrics.jsonl").exists() or started.process.poll() is not None)
        for arguments in (["--resume", run], ["--resume", run, "--workers", 3 - workers], [*TRAINING, "--out", run]):
            refused = co2("train", *arguments)
            assert refused.returncode == 4, refused.stderr
            assert f"a run is at work in {run}, process {started.process.pid} on " in refused.stderr, refused.stderr
        refused = co2("launch", "-n", 2, "--", CO2, "train", "--resume", run, "--workers", 2)
        assert refused.returncode == 4 and "a run is at work in" in refused.stderr, refused.stderr
        lines = (run / "metrics.jsonl").read_text().count("\n")
        wait_for(lambda: (run / "metrics.jsonl").read_text().count("\n") > lines)
        for pid in started.alive():
            os.kill(pid, signal.SIGKILL)
        again = co2("train", "--resume", run, "--steps", 4)
        assert again.returncode == 0, again.stderr
    assert metrics(run)[-1][0] == 4 and not (run / ".co2-lock").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1,
                                    signal.SIGUSR2])
def test_a_run_that_is_stopped_saves_and_goes_on(tmp_path, whole, number):
    run = tmp_path / "run"
    with Started("train", *TRAINING, "--out", run, "--steps", 40) as started:
        wait_for(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text().count("\n") >= 3
                 or started.process.poll() is not None)
        started.signal(number)
        code, _, said = started.finish()
    assert code == 128 + number, said
    summary = json.loads((run / "summary.json").read_text())
    assert summary["interrupted"] and summary["checkpoints"]["made"] == 1
    assert steps_saved(run) == [summary["steps"]] and summary["steps"] < 40
    result = co2("train", "--resume", run)
    assert result.returncode == 0, result.stderr
    assert f"going on after step {summary['steps']}" in result.stderr
    assert weights(run) == weights(whole)
    assert metrics(run) == metrics(whole)


def test_another_number_of_workers_goes_on_with_the_same_model(tmp_path):
    run = tmp_path / "run"
    assert train(run, "--steps", 16, "--checkpoint-every", 16).returncode == 0
    reference = weights(run)
    for layout in (["--workers", 1], ["--workers", 4], ["--workers", 4, "--island-size", 2],
                   ["--workers", 2, "--island-size", 2, "--zero", 3]):
        copy = tmp_path / "copy"
        shutil.copytree(run, copy)
        (copy / "summary.json").unlink()  # as if it had been killed after its last checkpoint
        result = co2("train", "--resume", copy, *layout)  # there is nothing left to do but to put all together
        assert result.returncode == 0, result.stderr
        assert "what was in flight was applied" in result.stderr and "going on after step 16" in result.stderr
        assert weights(copy) == reference, layout
        shutil.rmtree(copy)


def test_workers_come_and_go_between_the_lives_of_a_run(tmp_path):
    run = tmp_path / "run"
    arguments = ["train", *TRAINING, "--out", run]
    for steps, layout in ((10, []), (20, ["--workers", 3]), (30, ["--workers", 2, "--island-size", 2, "--zero", 2]),
                          (40, ["--workers", 1, "--island-size", 1, "--zero", 0])):
        result = co2(*arguments, "--steps", steps, "--checkpoint-every", 10, *layout)
        assert result.returncode == 0, result.stderr
        assert steps_saved(run)[-1] == steps
        arguments = ["train", "--resume", run]
    seen = [line[0] for line in metrics(run)]
    assert seen == sorted(seen) and seen[-1] == 40
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 40 and summary["workers"] == 1
    assert summary["validation_loss"] < summary["validation_loss_before"]
    config = json.loads((run / "config.json").read_text())
    assert config["workers"] == 1 and config["steps"] == 40


@contextlib.contextmanager
def small_disk(folder, megabytes):
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_costs_checkpoints_and_not_the_run(tmp_path):
    with small_disk(tmp_path / "disk", 40) as disk:  # two workers need some 30 MB each
        run = disk / "run"
        result = train(run, "--steps", 20, "--checkpoint-every", 5)
        assert result.returncode == 0, result.stderr
        summary = json.loads((run / "summary.json").read_text())
        assert summary["checkpoints"]["failed"] == 4 and summary["checkpoints"]["made"] == 0
        assert "could not be made" in result.stdout, result.stdout
        # Whoever looks first finds room for its own file, or sees what the other one has written by then.
        reasons = re.findall(r"no checkpoint of step \d+: .*(?:No space left|has room for .* needs).*", result.stderr)
        assert len(reasons) == 4, result.stderr
        assert steps_saved(run) == [] and not list(run.rglob("*partial*")), "what could not be used takes no space"
        assert weights(run)
        lines = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert lines == sorted(lines) and lines[-1] == 20, "what found no room was written later"


def test_a_run_whose_model_found_no_room_is_not_complete(tmp_path):
    with small_disk(tmp_path / "disk", 3) as disk:
        run = disk / "run"
        result = train(run, "--steps", 10)
        assert result.returncode == 4 and "No space left" in result.stderr, result.stderr
        result = co2("train", "--resume", run)
        assert result.returncode == 4, result.stderr
        assert "has no model (model/model.safetensors" in result.stderr, result.stderr


def test_a_model_that_is_missing_is_made_again_from_a_checkpoint(tmp_path):
    run = tmp_path / "run"
    assert train(run, "--steps", 8).returncode == 0
    reference = weights(run)
    shutil.rmtree(run / "model")
    result = co2("train", "--resume", run)
    assert result.returncode == 0 and "going on after step 8" in result.stderr, result.stderr
    assert weights(run) == reference


def test_a_folder_that_is_removed_is_an_error_at_the_end(tmp_path):
    run = tmp_path / "run"
    with Started("train", *TRAINING, "--out", run, "--steps", 60) as started:
        wait_for(lambda: (run / "metrics.jsonl").exists() or started.process.poll() is not None)
        shutil.rmtree(run)
        code, _, said = started.finish()
    assert code == 4, said
    assert f"{run}/metrics.jsonl was removed or moved while the run was writing to it" in said


def test_metrics_that_are_missing_are_told(tmp_path):
    run = tmp_path / "run"
    assert train(run, "--steps", 8).returncode == 0
    lines = len(metrics(run))
    (run / "metrics.jsonl").unlink()
    result = co2("train", "--resume", run, "--steps", 10)
    assert result.returncode == 0, result.stderr
    assert f"{run}/metrics.jsonl has lost" in result.stderr, result.stderr
    assert 0 < len(metrics(run)) < lines


def becomes_a_file(folder):
    """False when the run was quicker, and made the folder anew."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.write_text("in its place")
    except IsADirectoryError:
        return False
    return True


def test_a_folder_that_vanishes_costs_checkpoints_and_not_the_run(tmp_path):
    run = tmp_path / "run"
    with Started("train", *TRAINING, "--out", run, "--steps", 60, "--checkpoint-every", 3) as started:
        wait_for(lambda: steps_saved(run) or started.process.poll() is not None)
        wait_for(lambda: becomes_a_file(run / "checkpoints"))
        code, _, said = started.finish()
    assert code == 0, said
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 60 and summary["checkpoints"]["failed"] > 0
    result = co2("train", "--resume", run, "--steps", 70)
    assert result.returncode == 4 and "checkpoints" in result.stderr, result.stderr


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    assert train(run, "--steps", 4, "--checkpoint-every", 2).returncode == 0
    assert train(other, "--steps", 4, "--checkpoint-every", 0, "--context", 16).returncode == 0
    shutil.copytree(run / "checkpoints", other / "checkpoints")
    for layout in ([], ["--workers", 3]):
        result = co2("train", "--resume", other, "--steps", 8, *layout)
        assert result.returncode == 4 and "another model" in result.stderr, result.stderr


def test_time_between_checkpoints(tmp_path):
    run = tmp_path / "run"
    result = train(run, "--steps", 60, "--checkpoint-every", "0.2s", "--keep", 3)
    assert result.returncode == 0, result.stderr
    assert 1 <= len(steps_saved(run)) <= 3
    summary = json.loads((run / "summary.json").read_text())
    assert summary["checkpoints"]["failed"] == 0 and summary["checkpoints"]["bytes"] > 1e6
    assert "first checkpoint: " in result.stderr


def test_the_newest_good_one_is_used(tmp_path):
    run = tmp_path / "run"
    assert train(run, "--steps", 30, "--checkpoint-every", 5, "--keep", 10).returncode == 0
    reference = weights(run)
    assert steps_saved(run) == [5, 10, 15, 20, 25, 30]
    damaged = run / "checkpoints/step-000000000030/worker-00001.safetensors"
    contents = bytearray(damaged.read_bytes())
    contents[len(contents) // 2] ^= 1
    damaged.write_bytes(contents)
    (run / "checkpoints/step-000000000025/manifest.json").write_text("{}")
    for command in ("list", "verify"):
        result = co2("checkpoint", command, run)
        assert result.returncode == 4, result.stdout
        assert "NO GOOD" in result.stdout
    (run / "empty" / "checkpoints").mkdir(parents=True)
    nothing = co2("checkpoint", "verify", run / "empty")
    assert nothing.returncode == 4 and "no checkpoints" in nothing.stderr, nothing.stderr
    told = json.loads(co2("checkpoint", "verify", run, "--json").stdout)
    assert [(each["step"], each["problem"] is None) for each in told] == \
        [(30, False), (25, False), (20, True), (15, True), (10, True), (5, True)]
    assert "worker-00001.safetensors" in told[0]["problem"]
    (run / "summary.json").unlink()  # as if it had been killed after its last checkpoint
    result = co2("train", "--resume", run)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("passed over") == 2 and "going on after step 20" in result.stderr
    assert weights(run) == reference


def test_what_is_in_a_checkpoint_can_be_seen(tmp_path):
    run = tmp_path / "run"
    assert train(run, "--steps", 6, "--checkpoint-every", 3).returncode == 0
    shown = co2("checkpoint", "show", run)
    assert shown.returncode == 0, shown.stderr
    for word in ("step         6", "workers      2", "worker-00001.safetensors", "consensus/transformer.wte.weight", "F32"):
        assert word in shown.stdout
    verified = co2("checkpoint", "verify", run)
    assert verified.returncode == 0 and "all of them are good" in verified.stdout
    assert len(json.loads(co2("checkpoint", "verify", run, "--json").stdout)) == 2
    missing = co2("export", run, "--step", 7)
    assert missing.returncode == 4 and "no checkpoint of step 7 in" in missing.stderr, missing.stderr
    assert "but of 6, 3" in missing.stderr, missing.stderr
    told = json.loads(co2("checkpoint", "show", run, "--step", 3, "--json").stdout)
    assert told["step"] == 3 and told["about"]["model"] == "nano" and len(told["files"]) == 2


def test_a_folder_with_a_run_in_it_is_left_alone(tmp_path):
    run = tmp_path / "run"
    assert train(run, "--steps", 4, "--checkpoint-every", 2).returncode == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    result = train(run, "--steps", 4)
    assert result.returncode == 4 and "--resume" in result.stderr
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("arguments, code, words", [
    (["--resume", "nothing"], 4, "there is no run in it"),
    (["--resume", "run", "--out", "elsewhere"], 2, "leave out --out"),
    (["--resume", "run", "--config", "x.toml"], 2, "leave out --config"),
    (["--resume", "run", "--workers", 3, "--island-size", 2], 2, "island"),
    (["--resume", "run", "--steps", 8, "--local-steps", 6, "--wire", "int8"], 2,
     '--local-steps 6 (was 3), --wire "int8" (was "auto"): the checkpoints in run'),
    (["--resume", "run", "--steps", 8, "--context", 16], 2, "--context 16 (was 32)"),
    (["--resume", "run", "--steps", 8, "--optimizer", "sgd"], 2, '--optimizer "sgd" (was "adamw")'),
    (["--resume", "run", "--steps", 8, "--strategy", "eager-diloco"], 2, '--strategy "eager-diloco" (was "co2"): '),
    (["--resume", "run", "--steps", 8, "--strategy", "ddp"], 2, '--strategy "ddp" (was "co2"): '),
    (["--resume", "run", "--steps", 8, "--local-steps", 1], 2, "--local-steps 1 (was 3): "),
    (["image", "--resume", "run", "--steps", 8], 2, 'task "image" (was "gpt"): '),
    (["--resume", "run", "--model", "tiny"], 2, '--model "tiny" (was "nano"): '),  # also if nothing is left to do
    (["--resume", "run", "--steps", 3], 2, "has taken 4 already"),
    (["--checkpoint-every", "soon"], 2, "a number of steps"),
    (["--checkpoint-every", "-3"], 2, "a number of steps"),
    (["--keep", 0], 2, "keep"),
])
def test_what_can_not_be(tmp_path, arguments, code, words):
    assert train(tmp_path / "run", "--steps", 4, "--checkpoint-every", 2).returncode == 0
    result = co2("train", *arguments, cwd=tmp_path)
    assert result.returncode == code, result.stderr
    assert words in result.stderr
    again = co2("train", "--resume", tmp_path / "run", "--steps", 6)
    assert again.returncode == 0, "what did not fit is forgotten: " + again.stderr
    assert "Traceback" not in result.stderr and "terminate" not in result.stderr


def test_a_run_may_be_given_more_steps(tmp_path):
    run = tmp_path / "run"
    assert train(run, "--steps", 6, "--checkpoint-every", 3, "--schedule", "constant").returncode == 0
    result = co2("train", "--resume", run, "--steps", 10)
    assert result.returncode == 0, result.stderr
    assert "going on with other options than before: steps = 10 (was 6)\n" in result.stderr
    assert json.loads((run / "config.json").read_text())["steps"] == 10 and not (run / "config.next.json").exists()
    assert json.loads((run / "summary.json").read_text())["steps"] == 10
    assert [line[0] for line in metrics(run)][-1] == 10


def test_whether_blocks_are_compared_may_change(tmp_path):
    run = tmp_path / "run"
    assert train(run, "--steps", 4).returncode == 0
    for flag in ("--checksum", "--no-checksum"):
        steps = json.loads((run / "summary.json").read_text())["steps"]
        result = co2("train", "--resume", run, "--steps", steps + 2, flag)
        assert result.returncode == 0 and f"going on after step {steps}" in result.stderr, result.stderr


def test_a_run_without_a_checkpoint_begins_anew_with_other_options(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    config = co2("train", *TRAINING, "--steps", 4, "--print-config")
    (run / "config.json").write_text(config.stdout)  # as if it had been killed before its first checkpoint
    result = co2("train", "--resume", run, "--local-steps", 2)
    assert result.returncode == 0 and "from the beginning" in result.stderr, result.stderr
    (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoints")
    result = co2("train", "--resume", run, "--strategy", "eager-diloco")
    assert result.returncode == 2 and f"what was not given is from {run}/config.json" in result.stderr, result.stderr


def contents(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_finished_run_is_complete_and_stays_as_it_is(tmp_path, workers):
    run = tmp_path / "run"
    assert train(run, "--steps", 6, "--workers", workers).returncode == 0
    assert steps_saved(run) == [6], "one at the end, whenever the others are due"
    before = contents(run)
    result = co2("train", "--resume", run)
    assert result.returncode == 0 and "is complete: it has taken all its 6 steps" in result.stderr, result.stderr
    assert "from the beginning" not in result.stderr and result.stdout == ""
    told = co2("train", "--resume", run, "--json")
    assert json.loads(told.stdout) == json.loads((run / "summary.json").read_text())
    fewer = co2("train", "--resume", run, "--steps", 4)
    assert fewer.returncode == 2 and "has taken 6 already" in fewer.stderr, fewer.stderr
    assert contents(run) == before
    more = co2("train", "--resume", run, "--steps", 10)
    assert more.returncode == 0 and "going on after step 6" in more.stderr, more.stderr
    assert steps_saved(run) == [6, 10]


def test_a_finished_run_without_a_checkpoint_is_not_begun_anew(tmp_path):
    run = tmp_path / "run"
    assert train(run, "--steps", 4, "--checkpoint-every", 0).returncode == 0
    before = contents(run)
    result = co2("train", "--resume", run, "--steps", 6)
    assert result.returncode == 4 and "no checkpoint to go on from" in result.stderr, result.stderr
    assert co2("train", "--resume", run).returncode == 0, "it is complete"
    result = co2("train", "--resume", run, "--model", "tiny")
    assert result.returncode == 2 and '--model "tiny" (was "nano"): the results in' in result.stderr, result.stderr
    assert contents(run) == before


def test_workers_of_a_launcher_find_out_together_that_nothing_is_left_to_do(tmp_path):
    run = tmp_path / "run"
    assert train(run, "--steps", 4).returncode == 0
    before = contents(run)
    # When rank 0 refuses, the others say (4) that another worker does: the first one to end decides.
    for more, codes, words in (([], [0], "is complete"), (["--steps", 3], [2, 4], "has taken 4 already")):
        result = co2("launch", "--workers", 2, "--", CO2, "train", "--resume", run, *more)
        assert result.returncode in codes and words in result.stderr, result.stderr
        assert contents(run) == before


def losses(run):
    summary = json.loads((run / "summary.json").read_text())
    return summary["validation_loss_before"], summary["validation_loss"]


def test_weights_go_out_and_come_in(tmp_path):
    """What one run ends with, another begins with: as co2 wrote it, and as Hugging Face's library wrote it again."""
    assert train(tmp_path / "first", "--steps", 10, "--checkpoint-every", 5).returncode == 0
    begun_with = {"of the run": tmp_path / "first/model"}
    exported = co2("export", tmp_path / "first", "--to", "hf", "--step", 5, "--out", tmp_path / "step-5")
    assert exported.returncode == 0, exported.stderr
    assert weights_of(tmp_path / "step-5").keys() == weights_of(tmp_path / "first/model").keys()
    try:
        import transformers
    except ImportError:
        pass
    else:
        model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "first/model")
        model.save_pretrained(tmp_path / "theirs")
        begun_with["of transformers"] = tmp_path / "theirs"
        transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "step-5")
    for name, folder in begun_with.items():
        run = tmp_path / name
        assert train(run, "--steps", 1, "--init-from", folder).returncode == 0
        assert losses(run)[0] == pytest.approx(losses(tmp_path / "first")[1], rel=1e-5), name


def weights_of(folder):
    import safetensors.numpy

    return safetensors.numpy.load_file(folder / "model.safetensors")


def test_weights_that_do_not_fit_are_refused(tmp_path):
    assert train(tmp_path / "first", "--steps", 2, "--checkpoint-every", 0).returncode == 0
    for arguments, words in ((["--init-from", tmp_path / "nothing"], "has no model.safetensors"),
                             (["--init-from", tmp_path / "first/model", "--context", 16], "has the shape"),
                             (["--init-from", tmp_path / "first/model", "--model", "tiny"], "")):
        result = train(tmp_path / "second", "--steps", 2, *arguments)
        assert result.returncode == 4 and words in result.stderr, result.stderr
        shutil.rmtree(tmp_path / "second", ignore_errors=True)
    result = co2("export", tmp_path / "first")
    assert result.returncode == 4 and "no good checkpoint" in result.stderr
    assert co2("export", tmp_path / "first", "--to", "onnx").returncode == 2
