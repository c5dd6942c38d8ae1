"""Compares strategies on this machine: the same training once per strategy, interleaved (A B C A B C ...).

Prints medians with the lowest and highest of the repeats.

    python bench/strategies.py build/co2 [--model mini] [--workers 2] [--steps 36] [--repeats 3] [--json FILE]
                               [--strategies none,co2,ddp] [-- more options of co2 train]

ddp+zero2 is ddp with --zero 2, co2+bfloat16 is co2 with --wire bfloat16. Throughput is that of training alone, summed
over the workers; start-up, evaluation and export are not in it. Memory is the largest resident size of any worker; the
difference to `none` or `ddp`, in copies of the model, is what the strategy costs.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from arguments import split_at_dashes

FIGURES = {
    "tokens/s": lambda s: s["units_per_second"],
    "overlap %": lambda s: 100 * s["overlap"],
    "transfer s": lambda s: s["transfer_seconds"],
    "exposed s": lambda s: s["exposed_seconds"],
    "MB/step": lambda s: s["bytes_sent_per_worker_and_step"] / 1e6,
    "parameters MB": lambda s: s["memory"]["parameters"] / 1e6,
    "gradients MB": lambda s: s["memory"]["gradients"] / 1e6,
    "peak MB": lambda s: max(w["peak_megabytes"] for w in s["per_worker"]),
}


def train(arguments, strategy, folder):
    strategy, *variants = strategy.split("+")
    more = list(arguments.more)
    for variant in variants:
        stage = variant.removeprefix("zero")
        more += ["--zero", stage] if stage != variant else ["--wire", variant]
    command = [arguments.program, "train", "--strategy", strategy, "--workers", str(arguments.workers), "--model",
               arguments.model, "--steps", str(arguments.steps), "--eval-every", "0", "--corpus", "synthetic",
               "--sample-bytes", "0", "--out", str(folder), *more]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{result.stderr}")
    return json.loads((folder / "summary.json").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--strategies", default="none,co2,ddp")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=36)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    ours, more = split_at_dashes(sys.argv[1:])
    arguments = parser.parse_args(ours)
    arguments.more = more

    strategies = arguments.strategies.split(",")
    runs = {strategy: [] for strategy in strategies}
    for repeat in range(arguments.repeats):
        for strategy in strategies:
            print(f"repeat {repeat + 1} of {arguments.repeats}: {strategy}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                runs[strategy].append(train(arguments, strategy, Path(folder) / "run"))

    result = {"arguments": {k: str(v) for k, v in vars(arguments).items()}, "strategies": {}}
    print(f"{'':18}" + "".join(f"{name:>24}" for name in FIGURES))
    for strategy, summaries in runs.items():
        row = {}
        for name, read in FIGURES.items():
            values = sorted(read(s) for s in summaries)
            row[name] = {"median": statistics.median(values), "low": values[0], "high": values[-1]}
        result["strategies"][strategy] = row
        cells = (f"{v['median']:.4g} ({v['low']:.4g}-{v['high']:.4g})" for v in row.values())
        print(f"{strategy:18}" + "".join(f"{cell:>24}" for cell in cells))

    # Ratios within a repeat, so that what the machine did to one repeat cancels.
    for strategy in strategies:
        for base in ("none", "ddp"):
            if base not in runs or strategy == base:
                continue
            ratios = sorted(a["units_per_second"] / b["units_per_second"] for a, b in zip(runs[strategy], runs[base]))
            median = statistics.median(ratios)
            print(f"{strategy} / {base}: {median:.3f} ({ratios[0]:.3f}-{ratios[-1]:.3f}) of its throughput")
            result["strategies"][strategy][f"ratio to {base}"] = median
    copy = 4 * runs[strategies[0]][0]["parameters"] / 1e6
    for strategy in strategies:
        for base in ("none", "ddp"):
            if base not in runs or strategy == base:
                continue
            peaks = [result["strategies"][s]["peak MB"]["median"] for s in (strategy, base)]
            more = (peaks[0] - peaks[1]) / copy
            print(f"{strategy}: {more:+.2f} model copies of peak memory against {base} (one copy is {copy:.1f} MB)")
            result["strategies"][strategy][f"copies more than {base}"] = more
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
