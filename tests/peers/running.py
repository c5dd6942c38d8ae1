"""How the tests run the peers, and the co2 program that they are compared with."""

import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "peers"
sys.path.insert(0, str(PEERS))

CO2 = os.environ["CO2_PROGRAM"]
SECONDS = 300  # far more than anything here takes: a hang is a failure, not a wait
STEPS, LOCAL_STEPS = 8, 4
WORKLOAD = ("--model", "nano", "--context", "32", "--batch", "2", "--eval-batches", "2", "--steps", STEPS,
            "--eval-every", "0", "--sample-bytes", "0", "--threads", "1")


def environment(**changes) -> dict:
    hidden = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME")
    return {**{k: v for k, v in os.environ.items() if k not in hidden}, "OMP_NUM_THREADS": "1", **changes}


def write_corpus(folder: pathlib.Path) -> pathlib.Path:
    """Words in random order: enough to learn something from in a few steps."""
    chosen = random.Random(1)
    words = "the river runs under an old bridge and nobody remembers who built it or when".split()
    path = folder / "words.txt"
    path.write_text(" ".join(chosen.choice(words) for _ in range(20_000)))
    return path


def co2(*arguments) -> str:
    done = subprocess.run([CO2, "train", *map(str, arguments)], env=environment(), capture_output=True, text=True,
                          timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_config(folder: pathlib.Path, *arguments) -> pathlib.Path:
    path = folder / "config.json"
    path.write_text(co2("--print-config", *WORKLOAD, "--local-steps", LOCAL_STEPS, "--corpus", write_corpus(folder),
                        *arguments))
    return path


def co2_summary(folder: pathlib.Path, strategy: str) -> dict:
    """Of two workers of co2 with the same configuration."""
    period = () if strategy in ("none", "ddp") else ("--local-steps", LOCAL_STEPS)
    co2(*WORKLOAD, "--corpus", folder / "words.txt", "--strategy", strategy, *period, "--workers", "2",
        "--out", folder / f"co2-{strategy}")
    return json.loads((folder / f"co2-{strategy}" / "summary.json").read_text())


def train(python: str, *arguments, **variables) -> subprocess.CompletedProcess:
    return subprocess.run([python, str(PEERS / "train.py"), *map(str, arguments)], env=environment(**variables),
                          capture_output=True, text=True, timeout=SECONDS)


def free_ports() -> int:
    """A port that is free, and so is the next."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            try:
                second.bind(("127.0.0.1", first.getsockname()[1] + 1))
            except (OSError, OverflowError):
                continue
            return first.getsockname()[1]
    raise AssertionError("no two free ports")


def run_ranks(command: list[str], port: int) -> tuple[bool, str]:
    """Two workers to their end: whether both did well, and what they printed."""
    workers, printed = [], ""
    try:
        for rank in range(2):
            workers.append(subprocess.Popen(
                command, env=environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                                         MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo"),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True))
        for worker in workers:
            printed += worker.communicate(timeout=SECONDS)[0]
            if worker.returncode != 0:
                return False, printed
        return True, printed
    finally:
        for worker in workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.communicate()


def peer(python: str, name: str, config: pathlib.Path, out: pathlib.Path) -> tuple[dict, list[dict], int]:
    """Two workers to their end: summary, metrics, and the port of their rendezvous.

    PyTorch can't be handed an open socket, so another test may take the port in between: then once more with others."""
    for attempts_left in (2, 1, 0):
        port = free_ports()
        well, printed = run_ranks([python, str(PEERS / "train.py"), "--config", str(config), "--peer", name,
                                   "--local-steps", str(LOCAL_STEPS), "--out", str(out)], port)
        if well or not attempts_left or not re.search("EADDRINUSE|address already in use", printed, re.IGNORECASE):
            break
    assert well, printed
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return json.loads((out / "summary.json").read_text()), metrics, port


def relative_difference(a: float, b: float) -> float:
    return abs(a - b) / abs(a)
