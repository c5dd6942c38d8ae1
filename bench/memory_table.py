"""The table of docs/zero.md: what one worker holds for training, by model, island size and ZeRO stage, as
`co2 plan memory` computes it.

    python bench/memory_table.py build/co2 [--models small,xl] [--islands 1,4,8] [-- more options of co2 plan memory]
"""

import argparse
import json
import subprocess
import sys

from arguments import split_at_dashes


def plan(program, model, island, stage, more):
    command = [program, "plan", "memory", "--json", "--model", model, "--workers", str(max(2, 2 * island)), "--island",
               str(island), "--zero", str(stage), *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    ours, more = split_at_dashes(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--models", default="small,medium,large,xl,7b")
    parser.add_argument("--islands", default="1,4,8")
    arguments = parser.parse_args(ours)

    columns = [(1, 0) if island == 1 else (island, stage)
               for island in map(int, arguments.islands.split(",")) for stage in ([0] if island == 1 else [0, 1, 2, 3])]
    titles = ["K = 1" if island == 1 else f"K = {island}, zero {stage}" for island, stage in columns]
    print("| model | " + " | ".join(titles) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for model in arguments.models.split(","):
        plans = [plan(arguments.program, model, island, stage, more) for island, stage in columns]
        name = f"{model}, {plans[0]['parameters'] / 1e6:,.0f} M"
        print(f"| {name} | " + " | ".join(f"{p['memory']['total'] / 1e9:.1f}" for p in plans) + " |")


if __name__ == "__main__":
    main()
