"""Real processes over Gloo on the loopback interface: the same rules, and the same bits on every worker.

The stated rounding is the one of the in-process backend (comparing.py): Gloo's ring adds the same few numbers in
another order.
"""

import pytest

import comparing
from cases import GLOO, GLOO_WIRE
from replaying import Batches, random_data, replay


@pytest.fixture(scope="module")
def results():
    """All cases of one size, in one go of that many processes."""
    return Batches("environment", GLOO, lambda case: case["workers"])


@pytest.mark.parametrize("case", sorted(GLOO, key=lambda case: case["workers"]), ids=lambda case: case["name"])
def test_follows_the_rules(case, results):
    check(case, results[case])


@pytest.fixture(scope="module")
def wire_results():
    return replay("environment", GLOO_WIRE, random_data)


@pytest.mark.parametrize("case", GLOO_WIRE, ids=lambda case: case["name"])
def test_a_wire_of_bfloat16(case, wire_results):
    check(case, wire_results[case["name"]])


def check(case, result):
    assert (problem := comparing.difference(case, result, random_data(case))) is None, problem
    comparing.check_padding(case, result)
    comparing.check_workers_agree(case, result)
