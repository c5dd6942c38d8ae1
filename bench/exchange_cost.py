"""What exchanges cost the computation, seen inside runs: how much longer a step takes while the wire is busy.

    python bench/exchange_cost.py RUN...          folders of `co2 train --out`, or of `co2 lab`

Two runs on a shared machine differ by more than an exchange costs. Steps of one run share their neighbours, so for
every worker a straight line is laid through the time of its steps over the share of each that a transfer was under way.
The line's slope, times how much of the time the wire was busy, is the cost as a share of the computation.
"""

import argparse
import json
from pathlib import Path

import numpy as np

FIRST_STEPS = 5  # slow for other reasons
OUTLIER = 1.6  # times the median: an evaluation, or a neighbour


def merged(intervals):
    """Their union, in order: several transfers may be under way at once, and the wire is busy once."""
    union = []
    for begin, end in sorted(intervals):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((begin, end))
    return union


def cost_of_worker(events):
    steps = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["name"] == "compute"]
    steps = sorted(steps)[FIRST_STEPS:]
    begins = {e["id"]: e["ts"] for e in events if e["ph"] == "b"}
    transfers = merged((begins[e["id"]], e["ts"]) for e in events if e["ph"] == "e")
    if len(steps) < 20 or not transfers:
        return None
    seconds = np.array([end - begin for begin, end in steps]) * 1e-6
    busy = np.array([sum(max(0, min(end, t_end) - max(begin, t_begin)) for t_begin, t_end in transfers) / (end - begin)
                     for begin, end in steps])
    if busy.mean() < 0.005:
        return None  # a blocking strategy: it waits instead
    usual = seconds < OUTLIER * np.median(seconds)
    idle_step, slope = np.linalg.lstsq(np.c_[np.ones(usual.sum()), busy[usual]], seconds[usual], rcond=None)[0]
    return slope * busy.mean() / idle_step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+", type=Path)
    by_strategy = {}
    for folder in parser.parse_args().run:
        for trace in sorted(folder.rglob("trace.json")):
            events = json.loads(trace.read_text())["traceEvents"]
            for worker in sorted({e["pid"] for e in events}):
                cost = cost_of_worker([e for e in events if e["pid"] == worker])
                if cost is not None:
                    name = str(trace.parent.parent.relative_to(folder)) if trace.parent != folder else folder.name
                    by_strategy.setdefault(name, []).append(cost)
    if not by_strategy:
        raise SystemExit("no trace.json with at least 25 steps and an exchange in these folders")
    print(f"{'':32}  cost of exchanges, % of the computation: mean (lowest to highest), workers")
    for name, costs in by_strategy.items():
        low, mean, high = 100 * min(costs), 100 * np.mean(costs), 100 * max(costs)
        print(f"{name:32}  {mean:5.1f} ({low:.1f} to {high:.1f})  {len(costs)}")


if __name__ == "__main__":
    main()
