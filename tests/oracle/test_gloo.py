"""Real processes over Gloo on the loopback interface: the same rules, and the same bits on every worker.

The stated rounding is the one of the in-process backend (comparing.py): Gloo's ring adds the same few numbers in
another order.
"""

import pytest

import comparing
from cases import GLOO, GLOO_WIRE, STRATEGIES
from replaying import random_data, replay


@pytest.fixture(scope="module", params=[3, 4], ids=["3 processes", "4 processes"])
def results(request):
    """All cases of one size, in one go of that many processes."""
    chosen = [case for case in GLOO if case["workers"] == request.param]
    return chosen, replay("environment", chosen, random_data)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_follows_the_rules(strategy, results):
    cases, by_name = results
    (case,) = (case for case in cases if case["strategy"] == strategy)
    check(case, by_name[case["name"]])


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
