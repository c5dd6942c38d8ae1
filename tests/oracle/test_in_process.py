"""The library on its in-process backend against the oracle, within a few units in the last place (comparing.py)."""

import pytest

import comparing
from cases import IN_PROCESS
from replaying import random_data, replay

BATCH = 24  # cases per process: LibTorch takes a second to start


class Batches:
    """Results by case. A batch is run when its first case is asked for, and only the newest is kept; a batch that
    failed is not tried again for each of its cases."""

    def __init__(self):
        self.first, self.results, self.failure = None, {}, None

    def __getitem__(self, case):
        first = IN_PROCESS.index(case) // BATCH * BATCH
        if first != self.first:
            self.first, self.results, self.failure = first, {}, None
            try:
                self.results = replay("in-process", IN_PROCESS[first:first + BATCH], random_data)
            except RuntimeError as error:
                self.failure = error
        if self.failure:
            raise self.failure
        return self.results[case["name"]]


@pytest.fixture(scope="module")
def results():
    return Batches()


@pytest.mark.parametrize("case", IN_PROCESS, ids=lambda case: case["name"])
def test_follows_the_rules(case, results):
    result = results[case]
    assert (problem := comparing.difference(case, result, random_data(case))) is None, problem
    comparing.check_padding(case, result)
    comparing.check_workers_agree(case, result)
