"""The library on its in-process backend against the oracle, within a few units in the last place (comparing.py)."""

import pytest

import comparing
from cases import IN_PROCESS
from replaying import Batches, random_data

BATCH = 24  # cases per process
PLACE = {case["name"]: place for place, case in enumerate(IN_PROCESS)}


@pytest.fixture(scope="module")
def results():
    return Batches("in-process", IN_PROCESS, lambda case: PLACE[case["name"]] // BATCH)


@pytest.mark.parametrize("case", IN_PROCESS, ids=lambda case: case["name"])
def test_follows_the_rules(case, results):
    result = results[case]
    assert (problem := comparing.difference(case, result, random_data(case))) is None, problem
    comparing.check_padding(case, result)
    comparing.check_workers_agree(case, result)
