"""Real processes over Gloo on the loopback interface: the same rules, and the same bits on every worker.

The stated rounding is the one of the in-process backend (comparing.py): Gloo's ring adds the same few numbers in
another order.
"""

import pytest

import comparing
from cases import GLOO
from replaying import random_data, replay


@pytest.fixture(scope="module")
def results():
    by_size = {}

    def of(case):
        size = case["workers"]
        if size not in by_size:
            by_size[size] = replay("environment", [c for c in GLOO if c["workers"] == size], random_data)
        return by_size[size][case["name"]]

    return of


@pytest.mark.parametrize("case", GLOO, ids=lambda case: case["name"])
def test_follows_the_rules(case, results):
    result = results(case)
    assert (problem := comparing.difference(case, result, random_data(case))) is None, problem
    comparing.check_padding(case, result)
    comparing.check_workers_agree(case, result)
