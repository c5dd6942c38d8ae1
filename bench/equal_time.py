"""Loss beside throughput on a slow link, at equal samples and at equal time, over several seeds.

    python bench/equal_time.py build/co2 [--rate 100mbit] [--steps 800] [--seeds 1,2,3] [--strategies ddp,slowmo,co2]

For each seed every strategy trains for the same number of steps, in turns, between two network namespaces (co2 lab). Then
those that took longer than the fastest train once more, with a schedule of their own for as many steps as fit into its
time. Prints a line per strategy: median and range over the seeds.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def lab(arguments, strategy, steps, seed):
    """One run of one strategy; its figures."""
    with tempfile.TemporaryDirectory(prefix="co2-equal-time-") as folder:
        out = Path(folder) / "lab"
        command = [arguments.co2, "lab", "--rates", arguments.rate, "--strategies", strategy, "--repeats", "1",
                   "--steps", str(steps), "--seed", str(seed), "--model", arguments.model, "--out", str(out),
                   "--", *arguments.train]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
        (run,) = json.loads((out / "lab.json").read_text())["runs"]
        return run


def text(values, digits):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("co2", help="the program, build/co2")
    parser.add_argument("--rate", default="100mbit", help="of the link (default: 100mbit)")
    parser.add_argument("--model", default="nano")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--strategies", default="ddp,slowmo,co2")
    parser.add_argument("train", nargs="*", help="after --: options of co2 train, for all strategies")
    arguments = parser.parse_args()
    strategies = arguments.strategies.split(",")
    equal_samples = {strategy: [] for strategy in strategies}
    equal_time = {strategy: [] for strategy in strategies}
    for seed in [int(seed) for seed in arguments.seeds.split(",")]:
        runs = {strategy: lab(arguments, strategy, arguments.steps, seed) for strategy in strategies}
        fastest = min(run["training_seconds"] for run in runs.values())
        for strategy, run in runs.items():
            equal_samples[strategy].append(run)
            steps = max(round(arguments.steps * fastest / run["training_seconds"]), 1)
            again = lab(arguments, strategy, steps, seed) if steps < 0.97 * arguments.steps else run
            equal_time[strategy].append(again)
            print(f"seed {seed}  {strategy:18} {run['units_per_second']:8,.0f} tokens/s  {arguments.steps} steps in "
                  f"{run['training_seconds']:.0f} s: {run['validation_loss']:.4f}  {again['steps']} steps in "
                  f"{again['training_seconds']:.0f} s: {again['validation_loss']:.4f}", file=sys.stderr, flush=True)
    print(f"{arguments.model} at {arguments.rate}; median (lowest–highest) of seeds {arguments.seeds}\n"
          "| strategy | tokens/s | waited | validation loss, equal samples | steps at equal time | loss at equal time |\n"
          "|---|---|---|---|---|---|")
    for strategy in strategies:
        runs, again = equal_samples[strategy], equal_time[strategy]
        waited = [100 * run["exposed_seconds"] / run["training_seconds"] for run in runs]
        print(f"| `{strategy}` | {text([run['units_per_second'] for run in runs], 0)} | {text(waited, 1)} % | "
              f"{text([run['validation_loss'] for run in runs], 3)} | {text([run['steps'] for run in again], 0)} | "
              f"{text([run['validation_loss'] for run in again], 3)} |")


if __name__ == "__main__":
    main()
