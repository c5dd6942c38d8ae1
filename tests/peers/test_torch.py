"""PyTorch's own strategies with two workers: they end where ours of the same kind end, and report in our words."""

import fcntl
import subprocess
import sys

import pytest
import running

TOLERANCE = 1e-4  # relative, of a loss after a few steps in float32 with sums in other orders


@pytest.mark.parametrize("name, ours", [("torch-none", "none"), ("torch-ddp", "ddp"),
                                        ("torch-post-local-sgd", "local-sgd")])
def test_ends_with_the_loss_of_our_own_strategy(tmp_path, name, ours):
    config = running.write_config(tmp_path)
    theirs, metrics, _ = running.peer(sys.executable, name, config, tmp_path / "peer")
    expected = running.co2_summary(tmp_path, ours)
    for key in ("validation_loss_before", "validation_loss", "train_loss_before", "train_loss"):
        assert running.relative_difference(expected[key], theirs[key]) < TOLERANCE, key
    for key in ("task", "model", "parameters", "steps", "unit", "units", "workers", "corpus"):
        assert theirs[key] == expected[key], key
    assert set(expected) <= set(theirs)
    assert theirs["units_per_second"] == pytest.approx(theirs["units"] / theirs["training_seconds"])
    assert [row["step"] for row in metrics] == [*range(1, running.STEPS + 1), running.STEPS]
    assert metrics[-1]["validation_loss"] == theirs["validation_loss"]
    clock = [row["training_seconds"] for row in metrics]
    assert 0 < clock[0] and clock == sorted(clock) and clock[-1] <= theirs["training_seconds"]


def test_half_the_bytes_end_nearly_there(tmp_path):
    """Gradients are rounded to bfloat16, and ours are not: close, and not the same."""
    config = running.write_config(tmp_path)
    theirs, _, _ = running.peer(sys.executable, "torch-ddp-bf16", config, tmp_path / "peer")
    expected = running.co2_summary(tmp_path, "ddp")
    assert 0 < running.relative_difference(expected["validation_loss"], theirs["validation_loss"]) < 0.01


def test_averaging_in_the_middle_of_a_period_ends_with_one_model(tmp_path):
    """Nine steps with a period of four: the ninth is averaged by finish(), as ours is."""
    config = running.write_config(tmp_path, "--steps", "9", "--eval-every", "3")
    theirs, metrics, _ = running.peer(sys.executable, "torch-post-local-sgd", config, tmp_path / "peer")
    running.co2(*running.WORKLOAD, "--steps", "9", "--corpus", tmp_path / "words.txt", "--strategy", "local-sgd",
                "--local-steps", running.LOCAL_STEPS, "--workers", "2", "--out", tmp_path / "co2-local-sgd")
    expected = running.json.loads((tmp_path / "co2-local-sgd" / "summary.json").read_text())
    assert running.relative_difference(expected["validation_loss"], theirs["validation_loss"]) < TOLERANCE
    assert {row["step"] for row in metrics if row["validation_loss"]} == {3, 6, 9}


def setup(folder, **variables):
    return subprocess.Popen([running.PEERS / "setup"], env=running.environment(CO2_PEERS_VENV=str(folder), **variables),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_setup_refuses_a_link_that_leads_nowhere(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    _, said = setup(tmp_path / "link").communicate(timeout=running.SECONDS)
    assert "link is a link to" in said and "Remove the link, or name another folder: CO2_PEERS_VENV" in said


def test_setup_waits_for_another_one(tmp_path):
    with (tmp_path / "venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = setup(tmp_path / "venv", CO2_PEERS_BASE="no-such-python")
        assert "another peers/setup is at work" in second.stderr.readline()
    _, said = second.communicate(timeout=running.SECONDS)
    assert "no-such-python is no Python" in said  # its own turn


@pytest.mark.parametrize("arguments, message", [
    (["--peer", "torch-dpp"], "invalid choice"),
    ([], "one of --peer and --check"),
    (["--peer", "torch-none", "--config", "no-such.json"], "can't read the configuration no-such.json"),
    (["--peer", "torch-none", "--local-steps", "-1"], "local_steps is -1"),
    (["--check", "--co2", "no-such-program"], "there is no program no-such-program"),
])
def test_wrong_input_is_an_error_that_says_what_is_wrong(tmp_path, arguments, message):
    config = running.write_config(tmp_path)
    done = running.train(sys.executable, "--config", config, "--out", tmp_path, *arguments)
    assert done.returncode != 0 and message in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_an_incomplete_environment_is_an_error(tmp_path):
    config = running.write_config(tmp_path)
    done = running.train(sys.executable, "--config", config, "--out", tmp_path, "--peer", "torch-none",
                         WORLD_SIZE="2", RANK="0")
    assert done.returncode == 1 and "not MASTER_ADDR, MASTER_PORT" in done.stderr
