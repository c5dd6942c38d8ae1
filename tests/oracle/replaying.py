"""Runs oracle_replay on lists of cases, as threads of one process or as real processes over Gloo, and reads what it
wrote. Every process is bounded in time and gone afterwards, also when a test fails."""

import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from cases import MOST_STEPS, MOST_WORKERS
from layout import Layout

LIMIT_SECONDS = 180


class Data:
    """Initial parameters, curvature a and targets b[worker][step], as float32: what both sides start from."""

    def __init__(self, initial, curvature, targets):
        self.initial, self.curvature, self.targets = (np.asarray(x, np.float32) for x in (initial, curvature, targets))

    @staticmethod
    def random(numel):
        random = np.random.default_rng(20240501)
        return Data(2.0 * random.standard_normal(numel), random.uniform(0.1, 1.2, numel),
                    0.7 * random.standard_normal((MOST_WORKERS, 1, numel))
                    + random.standard_normal((MOST_WORKERS, MOST_STEPS, numel)))

    def write(self, folder):
        for name in ("initial", "curvature", "targets"):
            getattr(self, name).astype("<f4").tofile(folder / f"{name}.bin")
        return dict(initial=str(folder / "initial.bin"), curvature=str(folder / "curvature.bin"),
                    targets=str(folder / "targets.bin"), target_steps=self.targets.shape[1])


def numel(case):
    return sum(sum(group["sizes"]) for group in case["groups"])


class Result:
    """What the library's workers held: live and consensus, [snapshot][worker][flat element]."""

    def __init__(self, live, consensus, plan=None):
        self.live, self.consensus, self.plan = live, consensus, plan


def snapshots(case):
    return case["steps"] + len(case["finish_after"])


def read(case, folder):
    live, consensus = [], []
    for rank in range(case["workers"]):
        values = np.fromfile(folder / case["name"] / f"rank{rank}.bin", "<f4")
        values = values.reshape(snapshots(case), 2, Layout(case["groups"]).total)
        live.append(values[:, 0])
        consensus.append(values[:, 1])
    plan = json.loads((folder / case["name"] / "plan.json").read_text())
    return Result(np.stack(live, axis=1), np.stack(consensus, axis=1), plan)


def program():
    path = os.environ.get("CO2_ORACLE_REPLAY")
    if not path or not Path(path).exists():
        raise RuntimeError("CO2_ORACLE_REPLAY must name the program oracle_replay (ctest sets it)")
    return path


def clean_environment():
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("OMPI_", "SLURM_", "TORCHELASTIC_", "PMI", "CO2_"))}
    return kept | dict(OMP_NUM_THREADS="1")


def run_as_ranks(command, size):
    """As that many processes of one job. Rank 0 gets the socket for the store open: nobody else can take its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as store:
        job = dict(WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=str(store.getsockname()[1]))
        ranks = [clean_environment() | job | dict(RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(size)]
        ranks[0]["CO2_MASTER_LISTEN_FD"] = str(store.fileno())
        run_processes(command, ranks, for_the_first=(store.fileno(),))


def run_processes(command, variables, for_the_first=()):
    """One process for each set of variables; the first inherits these descriptors."""
    processes = []
    deadline = time.monotonic() + LIMIT_SECONDS
    try:
        for environment in variables:
            processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                                              stderr=subprocess.STDOUT, text=True,
                                              pass_fds=() if processes else for_the_first))
        # Polled, not waited for in order: when one fails, the others need not run into their time limit.
        while any(p.poll() is None for p in processes) and all(p.poll() in (None, 0) for p in processes):
            if time.monotonic() > deadline:
                raise TimeoutError(f"oracle_replay was not done after {LIMIT_SECONDS} s")
            time.sleep(0.02)
        failed = [p for p in processes if p.poll() not in (None, 0)]
    finally:
        for process in processes:
            process.kill()
        said = [process.communicate()[0] for process in processes]
    if failed:
        raise RuntimeError("oracle_replay failed:\n" + "".join(said))


def replay_files(backend, cases, data_of, reader):
    """Runs the cases in one go and returns reader(case, folder) for each, by name."""
    with tempfile.TemporaryDirectory(prefix="co2-oracle-") as name:
        folder = Path(name)
        written = {}
        items = []
        for case in cases:
            data = data_of(case)
            if id(data) not in written:
                place = folder / f"data{len(written)}"
                place.mkdir()
                written[id(data)] = data.write(place)
            items.append(case | written[id(data)])
        (folder / "batch.json").write_text(json.dumps(dict(backend=backend, cases=items)))
        command = [program(), str(folder / "batch.json"), str(folder / "out")]
        if backend == "environment":
            (size,) = {case["workers"] for case in cases}
            run_as_ranks(command, size)
        else:
            run_processes(command, [clean_environment()])
        return {case["name"]: reader(case, folder / "out") for case in cases}


def replay(backend, cases, data_of):
    return replay_files(backend, cases, data_of, read)


class Batches:
    """Results by case, of lists of cases that run in one go: LibTorch takes a second to start. `batch_of` tells which
    batch a case is in. A batch is run when its first case is asked for, and only the newest is kept; one that failed is
    not tried again for each of its cases."""

    def __init__(self, backend, cases, batch_of):
        self.backend, self.cases, self.batch_of = backend, cases, batch_of
        self.batch, self.results, self.failure = None, {}, None

    def __getitem__(self, case):
        batch = self.batch_of(case)
        if batch != self.batch:
            self.batch, self.results, self.failure = batch, {}, None
            try:
                self.results = replay(self.backend, [c for c in self.cases if self.batch_of(c) == batch], random_data)
            except (RuntimeError, TimeoutError) as error:
                self.failure = error
        if self.failure:
            raise self.failure
        return self.results[case["name"]]


_random = {}


def random_data(case):
    """The same for all cases of one size, but for gradients that are "not_finite": [worker, step, element, value]."""
    size, odd = numel(case), case.get("not_finite", [])
    if (size, str(odd)) not in _random:
        data = Data.random(size)
        for worker, step, element, value in odd:
            data.targets[worker, step, element] = float(value)
        _random[size, str(odd)] = data
    return _random[size, str(odd)]
