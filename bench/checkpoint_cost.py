"""What checkpoints cost: runs with one every so many steps and runs without, in turns (A B B A A B ...).

    python bench/checkpoint_cost.py build/co2 [--every 50] [--model nano] [--workers 2] [--steps 300] [--repeats 5]
                                    [--rate 100mbit] [-- more options of co2 train]

With --rate in the lab, on links of that speed. Prints throughput with checkpoints over that without: the median of the
ratios within a repeat, with the lowest and the highest; and what a checkpoint took of one worker.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from arguments import split_at_dashes
from strategies import FIGURES, train


def in_the_lab(arguments, folder):
    command = [arguments.program, "lab", "--rates", arguments.rate, "--strategies", "co2", "--repeats", "1",
               "--workers", str(arguments.workers), "--model", arguments.model, "--steps", str(arguments.steps),
               "--corpus", "synthetic", "--out", str(folder), "--", "--eval-every", "0", *arguments.more]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{result.stderr}")
    return json.loads(next(folder.rglob("summary.json")).read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rate")
    ours, more = split_at_dashes(sys.argv[1:])
    arguments = parser.parse_args(ours)

    runs = {0: [], arguments.every: []}
    for repeat in range(arguments.repeats):
        # Who goes first has the cooler or the warmer machine: both take turns.
        for every in list(runs)[:: 1 if repeat % 2 == 0 else -1]:
            print(f"repeat {repeat + 1} of {arguments.repeats}: {f'every {every} steps' if every else 'without'}",
                  file=sys.stderr, flush=True)
            arguments.more = [*more, "--checkpoint-every", str(every)]
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name) / "run"
                runs[every].append(in_the_lab(arguments, folder) if arguments.rate else train(arguments, "co2", folder))
    speed = FIGURES["tokens/s"]
    ratios = sorted(speed(with_them) / speed(without) for with_them, without in zip(runs[arguments.every], runs[0]))
    made = sum(run["checkpoints"]["made"] for run in runs[arguments.every])
    total = {figure: sum(run["checkpoints"][figure] for run in runs[arguments.every])
             for figure in ("bytes", "stalled_seconds")}
    print(f"throughput with checkpoints, of that without: {statistics.median(ratios):.3f} "
          f"({ratios[0]:.3f}-{ratios[-1]:.3f})")
    print(f"{made} checkpoints, each {total['bytes'] / max(made, 1) / 1e6:.1f} MB of one worker, for which training "
          f"stood still for {1000 * total['stalled_seconds'] / max(made, 1):.1f} ms")


if __name__ == "__main__":
    main()
