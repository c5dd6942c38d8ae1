"""The files of a run, with the names and keys of co2's own (src/train/summary.cc, src/train/run_files.cc), so that the
lab reads both alike. What a peer can't measure is null."""

import json
import math
import os
import pathlib
import resource
import socket


def bytes_sent(interface: str | None) -> int | None:
    """By this host through that interface since it exists. None for the loopback, which all workers share."""
    if not interface or interface == "lo":
        return None
    # Unlike /sys, /proc always shows the interfaces of the network namespace that this process is in.
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, colon, figures = line.partition(":")
        if colon and name.strip() == interface:
            return int(figures.split()[8])
    return None


def usable_cores() -> str:
    """As ranges: 0-3,6."""
    text, cores = [], sorted(os.sched_getaffinity(0))
    while cores:
        first = last = cores.pop(0)
        while cores and cores[0] == last + 1:
            last = cores.pop(0)
        text.append(f"{first}-{last}" if last > first else str(first))
    return ",".join(text)


def worker_figures(sent: int | None, threads: int) -> dict:
    return {
        "transfer_seconds": None,
        "exposed_seconds": None,
        "compute_seconds": None,
        "outer_seconds": None,
        "bytes_sent": sent,
        "memory": None,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "threads": threads,
        "cores": usable_cores(),
        "host": socket.gethostname(),
    }


def metrics_row(step: int, wall: float, training: float, loss: float, validation: float | None,
                units_per_second: float | None, rate: float, sent: int | None, local_steps: int | None) -> dict:
    return {"step": step, "wall_seconds": wall, "training_seconds": training, "train_loss": loss,
            "train_loss_step": step, "validation_loss": validation, "tokens_per_second": units_per_second,
            "learning_rate": rate, "overlap": None, "exposed_seconds": None, "transfer_seconds": None,
            "bytes": sent, "local_steps": local_steps, "wire": None, "clipped_exchanges": None}


def write_atomically(path: pathlib.Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def _finite(value):
    """JSON knows no infinity and no NaN: null, as in co2's own files."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(folder: pathlib.Path, summary: dict, metrics: list[dict]) -> None:
    write_atomically(folder / "metrics.jsonl", "".join(json.dumps(_finite(row)) + "\n" for row in metrics))
    write_atomically(folder / "summary.json", json.dumps(_finite(summary), indent=2) + "\n")
