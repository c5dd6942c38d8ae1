"""The library on its in-process backend against the oracle, within a few units in the last place (comparing.py)."""

import pytest

import comparing
from cases import IN_PROCESS
from replaying import random_data, replay

BATCH = 24  # cases per process: LibTorch takes a second to start


@pytest.fixture(scope="module")
def results():
    """By name; a batch is run when its first case is asked for, and only one is kept."""
    current = {}

    def of(case):
        if case["name"] not in current:
            first = IN_PROCESS.index(case) // BATCH * BATCH
            current.clear()
            current.update(replay("in-process", IN_PROCESS[first:first + BATCH], random_data))
        return current[case["name"]]

    return of


@pytest.mark.parametrize("case", IN_PROCESS, ids=lambda case: case["name"])
def test_follows_the_rules(case, results):
    result = results(case)
    assert (problem := comparing.difference(case, result, random_data(case))) is None, problem
    comparing.check_padding(case, result)
    comparing.check_workers_agree(case, result)
