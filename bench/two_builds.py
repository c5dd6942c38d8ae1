"""Compares two builds of co2, before and after a change: the same training with each, interleaved (A B B A A B ...).

    python bench/two_builds.py OLD/build/co2 NEW/build/co2 [--strategies none,co2,ddp,ddp+zero2] [--model mini]
                               [--workers 2] [--steps 36] [--repeats 4] [-- more options of co2 train]

Prints, per strategy, the new build's throughput and peak memory over the old one's: the median of the ratios within a
repeat, with the lowest and the highest. Names of strategies are those of strategies.py.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from arguments import split_at_dashes
from strategies import FIGURES, train


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--strategies", default="none,co2,ddp")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=36)
    parser.add_argument("--repeats", type=int, default=4)
    ours, more = split_at_dashes(sys.argv[1:])
    arguments = parser.parse_args(ours)
    arguments.more = more

    print(f"{'':18}{'throughput, new / old':>28}{'peak memory, new / old':>28}{'tokens/s, new':>16}{'MB, new':>10}")
    for strategy in arguments.strategies.split(","):
        runs = {arguments.old: [], arguments.new: []}
        for repeat in range(arguments.repeats):
            # Who goes first has the cooler or the warmer machine: both take turns.
            for program in list(runs)[:: 1 if repeat % 2 == 0 else -1]:
                print(f"{strategy}, repeat {repeat + 1}: {program}", file=sys.stderr, flush=True)
                arguments.program = program
                with tempfile.TemporaryDirectory() as folder:
                    runs[program].append(train(arguments, strategy, Path(folder) / "run"))
        cells = []
        for figure in ("tokens/s", "peak MB"):
            pairs = zip(runs[arguments.new], runs[arguments.old])
            ratios = sorted(FIGURES[figure](new) / FIGURES[figure](old) for new, old in pairs)
            cells.append(f"{statistics.median(ratios):.3f} ({ratios[0]:.3f}-{ratios[-1]:.3f})")
        newest = [statistics.median(FIGURES[f](run) for run in runs[arguments.new]) for f in ("tokens/s", "peak MB")]
        print(f"{strategy:18}{cells[0]:>28}{cells[1]:>28}{newest[0]:>16.0f}{newest[1]:>10.0f}", flush=True)


if __name__ == "__main__":
    main()
