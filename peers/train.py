#!/usr/bin/env python3
"""Trains the model of `co2 train` with another tool, for a comparison on the same model, data, batch and network.

    train.py --config CONFIG.json --peer NAME --out DIR     one process per worker, each with torchrun's environment
    train.py --check --config CONFIG.json --out DIR         is it the same network, data and optimizer as co2's?

CONFIG.json is what `co2 train --print-config ...` prints. The environment is RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT (alone: none of them), GLOO_SOCKET_IFNAME and OMP_NUM_THREADS. torchft's lighthouse takes the port after
MASTER_PORT. Rank 0 writes DIR/summary.json and DIR/metrics.jsonl, with the keys of co2's own files.
"""

import argparse
import datetime
import json
import os
import pathlib
import socket
import sys
import time

import torch
import torch.distributed as dist

import results
import strategies
from data import DataError, Windows, load_corpus
from gpt import Gpt, preset
from loop import take_step, validation_sums
from optimizer import RateSchedule, make_optimizer

LONGEST_CONTROL_PERIOD = 10


def own_address(master: str, port: int) -> str:
    """The address that leads from here to the master, which is where the others reach this host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, port))  # sends nothing
        return probe.getsockname()[0]


class Run:
    """One worker's part in a run: src/train/loop.cc."""

    def __init__(self, config: dict, peer: str, local_steps: int):
        self.config = config
        self.peer = peer
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        shape = preset(config["model"], config["context"])
        self.windows = Windows(load_corpus(config["corpus"]), config["validation_share"], shape.context)
        self.validation = self.windows.validation(config["eval_batches"], config["batch"], self.rank, self.size)
        self.model = Gpt(shape, config["seed"])
        optimizer = make_optimizer(config, self.model)
        self.schedule = RateSchedule(config)
        self.interface = os.environ.get("GLOO_SOCKET_IFNAME")
        self.steps = 0
        self.losses: list[float] = []  # of this worker, one per step
        self.times: list[float] = []  # the training clock and the wall clock after each step
        self.walls: list[float] = []
        self.evaluations: dict[int, float] = {}
        self.sent: int | None = None
        self.trained = 0.0
        self.final_exchange = 0.0
        master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self.strategy = strategies.make_strategy(peer, strategies.Context(
            model=self.model, optimizer=optimizer, rank=self.rank, size=self.size,
            host=own_address(master, port), master=master, master_port=port, local_steps=local_steps,
            gradient_clip=config["gradient_clip"],
            patience=datetime.timedelta(seconds=config["collective_timeout"])), config["steps"])

    def execute(self) -> tuple[dict, list[dict]]:
        try:
            dist.barrier()
            self.origin = time.monotonic()
            before = self.evaluate()
            self.train()
            after = self.evaluate()
            wall = time.monotonic() - self.origin
            answer = self.collect(before, after, wall)
            dist.barrier()  # nobody takes the lighthouse or a store away while another worker may need it
            return answer
        finally:
            self.strategy.close()

    def train(self) -> None:
        config = self.config
        sent_before = results.bytes_sent(self.interface)
        self.resumed = time.monotonic()
        while self.steps < config["steps"]:
            self.losses.append(take_step(config, self.windows, self.strategy, self.steps, self.schedule.at(self.steps)))
            self.steps += 1
            now = time.monotonic()
            self.times.append(self.trained + now - self.resumed)
            self.walls.append(now - self.origin)
            if config["eval_every"] > 0 and self.steps % config["eval_every"] == 0 and self.steps < config["steps"]:
                self.trained += time.monotonic() - self.resumed
                self.evaluations[self.steps] = self.evaluate_average()
                self.resumed = time.monotonic()
        ended = time.monotonic()
        self.trained += ended - self.resumed
        if sent_before is not None:
            self.sent = results.bytes_sent(self.interface) - sent_before
        self.strategy.finish()  # once per run, and apart from its figures, as in ours
        self.final_exchange = time.monotonic() - ended

    def evaluate(self) -> float:
        """Mean over the validation data of all workers, each with the parameters that are in its model now."""
        sums = validation_sums(self.model, self.validation)
        dist.all_reduce(sums)
        return (sums[0] / sums[1]).item()

    @torch.no_grad()
    def evaluate_average(self) -> float:
        """In the middle of a run: of the average of the workers' models, as finish() would make it, for the moment."""
        if isinstance(self.strategy, (strategies.NoCommunication, strategies.Ddp)):
            return self.evaluate()
        own = [p.detach().clone() for p in self.model.parameters()]
        flat = torch.cat([p.view(-1) for p in own])
        dist.all_reduce(flat)
        for parameter, mean in zip(self.model.parameters(), (flat / self.size).split([p.numel() for p in own])):
            parameter.copy_(mean.view_as(parameter))
        loss = self.evaluate()
        for parameter, value in zip(self.model.parameters(), own):
            parameter.copy_(value)
        return loss

    def collect(self, before: float, after: float, wall: float) -> tuple[dict, list[dict]]:
        config, corpus = self.config, self.windows.corpus
        per_step = torch.tensor(self.losses, dtype=torch.float64)
        dist.all_reduce(per_step)
        losses = (per_step / self.size).tolist()
        trained = torch.tensor(self.trained, dtype=torch.float64)
        dist.all_reduce(trained, dist.ReduceOp.MAX)  # who is ahead has not made the others' tokens any faster
        seconds = trained.item()
        workers: list[dict | None] = [None] * self.size
        dist.all_gather_object(workers, results.worker_figures(self.sent, torch.get_num_threads()))
        sent = [worker["bytes_sent"] for worker in workers]
        mean_sent = None if None in sent else sum(sent) / self.size
        recent = max(self.steps // 20, 1)
        units_per_step = config["batch"] * self.windows.context * config["accumulation_steps"] * self.size
        units = units_per_step * self.steps
        summary = {
            "task": config["task"],
            "model": config["model"],
            "parameters": self.model.parameter_count(),
            "train_loss_before": losses[0],
            "train_loss": sum(losses[-recent:]) / recent,
            "validation_loss_before": before,
            "validation_loss": after,
            "metrics_before": {},
            "metrics": {},
            "steps": self.steps,
            "interrupted": False,
            "checkpoints": None,
            "unit": "tokens",
            "units": units,
            "units_per_second": units / seconds,
            "training_seconds": seconds,
            "final_exchange_seconds": self.final_exchange,
            "wall_seconds": wall,
            "transfer_seconds": None,
            "exposed_seconds": None,
            "overlap": None,
            "bytes_sent_per_worker": mean_sent,
            "bytes_sent_per_worker_and_step": None if mean_sent is None else mean_sent / self.steps,
            "memory": None,
            "launcher": "environment",
            "workers": self.size,
            "local_steps": self.strategy.local_steps,
            "recipe": {"strategy": self.peer, "local_steps": self.strategy.local_steps, **self.strategy.describe()},
            "corpus": {"name": corpus.name, "sha256": corpus.sha256, "bytes": len(corpus.text)},
            "pace": None,
            "rate_factor": 1,
            "left_out": None,
            "clipping": None,
            "per_worker": workers,
            "sample": "",
        }
        return summary, self.metrics(losses, units_per_step, after, wall)

    def metrics(self, losses: list[float], units_per_step: int, after: float, wall: float) -> list[dict]:
        """As often as ours, and where there was an evaluation. Written at the end: a peer has no channel in the
        background for the mean loss, and a collective per row would cost it time that ours does not pay."""
        period = min(max(self.config["steps"] // 100, 1), LONGEST_CONTROL_PERIOD)
        rows, begin = [], 0
        for step in range(1, self.steps + 1):
            if step % period != 0 and step not in self.evaluations and step < self.steps:
                continue
            seconds = self.times[step - 1] - (self.times[begin - 1] if begin else 0.0)
            rows.append(results.metrics_row(
                step, self.walls[step - 1], self.times[step - 1], sum(losses[begin:step]) / (step - begin),
                self.evaluations.get(step), units_per_step * (step - begin) / max(seconds, 1e-9), self.schedule.at(step - 1),
                None, self.strategy.local_steps))
            begin = step
        rows.append({**rows[-1], "wall_seconds": wall, "validation_loss": after, "bytes": self.sent})
        return rows


def join_cluster(config: dict) -> None:
    """torchrun's variables; without them, alone."""
    if "WORLD_SIZE" not in os.environ:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ValueError(f"the environment has WORLD_SIZE but not {', '.join(missing)}: use torchrun, or set them")
    if config["threads"] > 0:
        torch.set_num_threads(config["threads"])
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=config["rendezvous_timeout"]))
    dist.group.WORLD._get_backend(torch.device("cpu"))._set_default_timeout(
        datetime.timedelta(seconds=config["collective_timeout"]))


def read_config(path: str) -> dict:
    try:
        config = json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"can't read the configuration {path}: {error}") from error
    if not isinstance(config, dict) or "model" not in config or "steps" not in config:
        raise ValueError(f"{path} is not what `co2 train --print-config` prints")
    if config.get("task") != "gpt":
        raise ValueError(f"the peers train the task gpt only, not {config.get('task')}")
    return config


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, metavar="FILE", help="what `co2 train --print-config` prints")
    parser.add_argument("--peer", choices=strategies.NAMES, help="the tool to train with")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the results")
    parser.add_argument("--local-steps", type=int, metavar="N", help="τ, instead of the configuration's")
    parser.add_argument("--check", action="store_true", help="compare model, data and optimizer with co2's own")
    parser.add_argument("--co2", metavar="FILE", default="co2", help="the program, for --check (default: %(default)s)")
    arguments = parser.parse_args()
    if not arguments.check and not arguments.peer:
        parser.error("one of --peer and --check is needed")
    try:
        config = read_config(arguments.config)
        out = pathlib.Path(arguments.out)
        out.mkdir(parents=True, exist_ok=True)
        if arguments.check:
            import check

            return check.run(config, arguments.co2, out)
        local_steps = arguments.local_steps or config["local_steps"]
        if not isinstance(local_steps, int) or local_steps < 1:
            raise ValueError(f"local_steps is {local_steps}: a peer can't choose it; give --local-steps N")
        join_cluster(config)
        try:
            summary, metrics = Run(config, arguments.peer, local_steps).execute()
            if dist.get_rank() == 0:
                results.write(out, summary, metrics)
                print(f"{arguments.peer}: {summary['units_per_second']:.0f} tokens/s over "
                      f"{summary['workers']} workers, validation loss {summary['validation_loss']:.4f}",
                      file=sys.stderr)
        finally:
            dist.destroy_process_group()
    except (DataError, ValueError, OSError, RuntimeError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
