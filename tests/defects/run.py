"""Shows that the tests against known defects can fail: puts each defect into a copy of one source file, links the test
program with it, and expects the defect's test to fail, and to pass without the defect.

    python run.py BUILD_DIR [--only NAME]

A defect is a patch NAME.patch beside this file whose header lines say what it is and who must notice:

    # <one line about the defect>
    # test: <program> <GoogleTest filter>
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIMIT_SECONDS = 240


def read_defect(path):
    header = [line[1:].strip() for line in path.read_text().splitlines() if line.startswith("#")]
    program, test_filter = next(line for line in header if line.startswith("test:")).split()[1:]
    patched = [line[6:].strip() for line in path.read_text().splitlines() if line.startswith("+++ b/")]
    if len(patched) != 1:
        sys.exit(f"{path.name}: a defect must change one source file, this one changes {patched}")
    return header[0], program, test_filter, patched[0]


def compile_with_defect(build, patch, source, folder):
    """Compiles the patched copy of `source` with the flags of the original; returns the object file."""
    copy = folder / source
    copy.parent.mkdir(parents=True)
    copy.write_text((ROOT / source).read_text())
    applied = subprocess.run(["git", "apply", "-p1", str(patch)], cwd=folder, capture_output=True, text=True,
                             env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)})
    if applied.returncode != 0:
        sys.exit(f"{patch.name} does not apply to {source} any more; bring it up to date:\n{applied.stderr}")
    commands = json.loads((build / "compile_commands.json").read_text())
    entry = next(e for e in commands if Path(e["file"]) == ROOT / source)
    words = shlex.split(entry["command"])
    target = folder / "defect.o"
    words[words.index("-o") + 1] = str(target)
    words[words.index("-c") + 1] = str(copy)
    # A defect may be something that the compiler would warn about.
    subprocess.run([*words, "-w"], cwd=entry["directory"], check=True)
    return target


def link(build, program, defect_object, output):
    """Links the test program once more, with the defect's object before the library, whose own copy then stays out."""
    steps = subprocess.run(["ninja", "-C", str(build), "-t", "commands", program], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    # Ninja wraps a link as ": && c++ ... && :".
    words = next(w for step in reversed(steps) for w in [shlex.split(step.removeprefix(": && ").removesuffix(" && :"))]
                 if "-o" in w)
    words[words.index("-o") + 1] = str(output)
    first_object = next(i for i, word in enumerate(words) if word.endswith(".o"))
    words.insert(first_object, str(defect_object))
    subprocess.run(words, cwd=build, check=True)


def run_test(binary, test_filter):
    """How it ended ("passed", "failed", or why neither can be said), the seconds it took, and what was printed.

    Only GoogleTest's own word counts: a program that crashes or hangs has noticed nothing."""
    started = time.monotonic()
    # A session of its own: the test forks workers, and a hang must not leave them behind.
    with subprocess.Popen([str(binary), f"--gtest_filter={test_filter}"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        try:
            printed, _ = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            return f"did not end within {LIMIT_SECONDS} s", time.monotonic() - started, printed
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return verdict(process.returncode, printed), time.monotonic() - started, printed


def verdict(code, printed):
    if "[ RUN      ]" not in printed:
        return f"ran no test (exit code {code})"
    if code == 0 and re.search(r"^\[  PASSED  \] [1-9]", printed, re.MULTILINE) and "[  SKIPPED ]" not in printed:
        return "passed"
    if code == 1 and re.search(r"^\[  FAILED  \] \d+ tests?, listed below", printed, re.MULTILINE):
        return "failed"
    return f"ended with exit code {code} without a verdict"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--only", help="run the defects whose name contains this")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    failed = []
    defects = [d for d in sorted(HERE.glob("*.patch")) if not arguments.only or arguments.only in d.stem]
    for defect in defects:
        what, program, test_filter, source = read_defect(defect)
        outcome, _, printed = run_test(next(build.glob(f"tests/*/{program}")), test_filter)
        if outcome != "passed":
            print(f"BROKEN     {defect.stem}: without the defect {test_filter} {outcome}:\n{printed}", flush=True)
            failed.append(defect.stem)
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            mutant = folder / program
            link(build, program, compile_with_defect(build, defect, source, folder), mutant)
            outcome, seconds, printed = run_test(mutant, test_filter)
        if outcome == "failed":
            print(f"noticed    {defect.stem}: {what} ({test_filter}, {seconds:.0f} s)", flush=True)
        else:
            print(f"UNNOTICED  {defect.stem}: {what}: {test_filter} {outcome}:\n{printed}", flush=True)
            failed.append(defect.stem)
    print(f"{len(defects) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed or not defects else 0)


if __name__ == "__main__":
    main()
