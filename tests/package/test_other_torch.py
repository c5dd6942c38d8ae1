"""`make test-torch TORCH=…` goes through all of its steps, in this order, and stops where one fails. What it would build
and install takes an hour and gigabytes: here its tools only note that they were called."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = [
    "setup --torch=9.8.7",
    "build release co2 co2_program unit_tests, .venv-torch-9.8.7/bin/python, build-torch-9.8.7",
    "ctest --parallel 2 --output-on-failure --no-tests=error --timeout 900 -L unit",
    "ctest --output-on-failure --no-tests=error -R ^package_consumer$",
    "co2 train --workers 2",
]


@pytest.fixture
def project(tmp_path):
    for folder in ("scripts", "bin", "build-torch-9.8.7", ".venv-torch-9.8.7/bin"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("Makefile", "scripts/test_torch", "scripts/python.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    for tool in ("scripts/setup", "scripts/build", "bin/ctest", "build-torch-9.8.7/co2", ".venv-torch-9.8.7/bin/python"):
        note = 'echo "$(basename "$0") $*'
        note += ', ${CO2_PYTHON#"$PWD/"}, $CO2_BUILD_FOLDER"' if tool == "scripts/build" else '"'
        (tmp_path / tool).write_text(f'#!/bin/bash\n{note} >>"$CALLS"\nexec test "$(wc -l <"$CALLS")" != "$FAIL_AT"\n')
        (tmp_path / tool).chmod(0o755)
    return tmp_path


def make(project, *arguments, fail_at=0):
    calls = project / "calls"
    environment = os.environ | {"PATH": f"{project}/bin:{os.environ['PATH']}", "CALLS": str(calls), "FAIL_AT": str(fail_at)}
    for name in ("CO2_PYTHON", "MAKEFLAGS", "MAKELEVEL"):
        environment.pop(name, None)
    result = subprocess.run(["make", "test-torch", *arguments], cwd=project, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    print(result.stdout)
    return result, calls.read_text().splitlines() if calls.exists() else []


def test_goes_through_all_steps(project):
    result, calls = make(project, "TORCH=9.8.7")
    assert result.returncode == 0
    assert [call.startswith(step) for call, step in zip(calls, STEPS)] == [True] * len(STEPS)
    assert "all is well with torch" in result.stdout


@pytest.mark.parametrize("step", range(1, len(STEPS) + 1))
def test_stops_where_one_fails(project, step):
    result, calls = make(project, "TORCH=9.8.7", fail_at=step)
    assert result.returncode != 0
    assert len(calls) == step
    assert "all is well" not in result.stdout


@pytest.mark.parametrize("torch", ["TORCH=", "TORCH=newest"])
def test_asks_which_torch(project, torch):
    result, calls = make(project, torch)
    assert result.returncode != 0
    assert "which torch?" in result.stdout
    assert calls == []


def test_is_not_part_of_ci():
    assert "test-torch" not in (ROOT / ".ci/run").read_text()
    assert "test_torch" not in (ROOT / ".ci/run").read_text()
