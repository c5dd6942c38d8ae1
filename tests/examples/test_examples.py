"""The examples run, as several processes, and do what they say."""

import os
import re
import socket
import subprocess
from pathlib import Path

EXAMPLES = Path(os.environ["CO2_EXAMPLES"])
LIMIT_SECONDS = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(program, size, **variables):
    """Starts one process per rank; returns (exit code, output) of each."""
    port = str(free_port())
    workers = []
    for rank in range(size):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": port, **variables}
        workers.append(subprocess.Popen([EXAMPLES / program], env=environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True))
    try:
        return [(worker.returncode, output) for worker in workers
                for output in [worker.communicate(timeout=LIMIT_SECONDS)[0]]]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def test_own_optimizer_over_its_own_process_group():
    line = re.compile(r"rank (\d): loss ([\d.]+) -> ([\d.]+), sum of parameters (\S+), (\d+) % of the communication")
    sums, losses = [], []
    for rank, (code, output) in enumerate(run("own_optimizer", 2)):
        found = line.search(output)
        assert code == 0 and found, output
        assert int(found[1]) == rank
        assert float(found[3]) < 0.05 * float(found[2]), output
        sums.append(found[4])
        losses.append(found[3])
    assert sums[0] == sums[1] and losses[0] == losses[1]  # the same model everywhere


def test_own_optimizer_says_what_is_missing():
    environment = {name: value for name, value in os.environ.items() if name != "MASTER_ADDR"}
    environment.update(RANK="0", WORLD_SIZE="2", MASTER_PORT=str(free_port()))
    ended = subprocess.run([EXAMPLES / "own_optimizer"], env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 3
    assert "MASTER_ADDR is not set" in ended.stderr
