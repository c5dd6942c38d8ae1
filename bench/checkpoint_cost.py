#!/usr/bin/env python3
"""What checkpoints cost: runs with one every 50 steps and runs without, in turns, on this machine and in the lab."""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def one_machine(program, flags, every, folder):
    run = [program, "train", *flags, "--checkpoint-every", str(every), "--out", str(folder / "run"), "--json"]
    result = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    shutil.rmtree(folder / "run")
    return result["units_per_second"], result["checkpoints"]


def in_the_lab(program, flags, every, folder, rate):
    run = [program, "lab", "--rates", rate, "--strategies", "co2", "--repeats", "1", "--out", str(folder / "lab"),
           "--", *flags, "--checkpoint-every", str(every)]
    subprocess.run(run, check=True, capture_output=True)
    summary = json.loads(next((folder / "lab").rglob("summary.json")).read_text())
    shutil.rmtree(folder / "lab")
    return summary["units_per_second"], summary["checkpoints"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--program", default="build/co2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--rate", help="in the lab, with a link of this speed (as root): 100mbit, say")
    parser.add_argument("flags", nargs="*", help="of co2 train, after --")
    options = parser.parse_args()
    flags = ["--eval-every", "0", "--sample-bytes", "0", *(options.flags or ["--workers", "2", "--steps", "300"])]
    if options.rate:
        flags = [flag for i, flag in enumerate(flags) if flag != "--workers" and flags[i - 1] != "--workers"]
    ratios, checkpoints = [], None
    with tempfile.TemporaryDirectory() as name:
        measure = (lambda every: in_the_lab(options.program, flags, every, Path(name), options.rate)) if options.rate \
            else (lambda every: one_machine(options.program, flags, every, Path(name)))
        for turn in range(options.repeats):
            # Who goes first takes turns too: a machine that gets busier would favour one of them.
            order = (0, options.every) if turn % 2 == 0 else (options.every, 0)
            speeds = {}
            for every in order:
                speeds[every], made = measure(every)
                if every:
                    checkpoints = made
            ratios.append(speeds[options.every] / speeds[0])
            print(f"{turn + 1}/{options.repeats}: {speeds[0]:,.0f} without, {speeds[options.every]:,.0f} with, "
                  f"{ratios[-1]:.3f}", file=sys.stderr)
    print(f"throughput with a checkpoint every {options.every} steps, of that without: "
          f"{statistics.median(ratios):.3f} [{min(ratios):.3f} - {max(ratios):.3f}]")
    made = max(checkpoints["made"], 1)
    print(f"{checkpoints['made']} checkpoints, each {checkpoints['bytes'] / made / 1e6:.1f} MB of one worker, "
          f"training stood still for {1000 * checkpoints['stalled_seconds'] / made:.1f} ms")


if __name__ == "__main__":
    main()
