"""torchft's strategies with two workers, in the environment that peers/setup makes."""

import math
import socket
import subprocess

import pytest
import running

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def python():
    done = subprocess.run([running.PEERS / "setup", "--check"], capture_output=True, text=True, timeout=running.SECONDS)
    if done.returncode != 0:
        pytest.skip("there is no environment with torchft: run peers/setup to test with it")
    return done.stdout.splitlines()[-1]


def nobody_listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("name, ours", [("torchft-local-sgd", "local-sgd"), ("torchft-diloco", "diloco")])
def test_ends_with_the_loss_of_our_own_strategy(python, tmp_path, name, ours):
    config = running.write_config(tmp_path)
    theirs, _, port = running.peer(python, name, config, tmp_path / "peer")
    expected = running.co2_summary(tmp_path, ours)
    assert running.relative_difference(expected["validation_loss"], theirs["validation_loss"]) < TOLERANCE
    assert nobody_listens(port + 1)  # the lighthouse


@pytest.mark.parametrize("name, fragments, delay", [("torchft-diloco-overlap", 1, running.LOCAL_STEPS - 1),
                                                    ("torchft-streaming", 4, running.LOCAL_STEPS // 4 - 1)])
def test_overlapped_strategies_learn(python, tmp_path, name, fragments, delay):
    """Ours of that kind differ in when a result is used, so only the course is compared."""
    config = running.write_config(tmp_path)
    theirs, metrics, port = running.peer(python, name, config, tmp_path / "peer")
    assert theirs["validation_loss"] < 0.95 * theirs["validation_loss_before"]
    assert (theirs["recipe"]["fragments"], theirs["recipe"]["delay"]) == (fragments, delay)
    assert all(math.isfinite(row["train_loss"]) for row in metrics)
    assert nobody_listens(port + 1)


@pytest.mark.parametrize("local_steps, fragments, delay", [(6, 3, 1), (7, 1, 6)])
def test_fragments_are_as_many_as_divide_the_period(python, tmp_path, local_steps, fragments, delay):
    config = running.write_config(tmp_path)
    done = running.train(python, "--config", config, "--out", tmp_path, "--peer", "torchft-streaming",
                         "--local-steps", local_steps)
    assert done.returncode == 0, done.stderr
    recipe = running.json.loads((tmp_path / "summary.json").read_text())["recipe"]
    assert (recipe["fragments"], recipe["delay"]) == (fragments, delay)
