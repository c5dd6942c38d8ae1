"""The comparison can fail: an oracle with one rule changed disagrees with the library where that rule matters."""

import numpy as np
import pytest

import comparing
from cases import bursts, make
from oracle import Layout, Oracle, to_bfloat16
from replaying import random_data, replay

PAPER = make("m-paper", "co2-paper", 3, 4, weights="unequal", clip=2.5, clip_mode="value")
PAPER_GAP = make("m-paper-gap", "co2-paper", 3, 4, clip=0.0)
NORM = make("m-norm", "co2", 4, 4, fragments=2, clip=60.0, clip_mode="norm", weights="unequal")
KEEP = make("m-keep", "co2", 3, 7, fragments=5, weights="absent", clip=2.5, clip_mode="value")
KEEP_WHOLE = make("m-keep-whole", "co2", 3, 4, fragments=1, penalty=True, clip=0.0)
NOBODY = make("m-nobody", "co2", 3, 4, fragments=1, weights="nobody", clip=0.0)
ZEROS = make("m-zeros", "co2", 3, 4, fragments=2, schedule="zeros", weights="absent", clip=0.0, momentum=0.3, steps=40)
STREAM = make("m-stream", "streaming-diloco", 3, 7, weights="unequal")
ANCHOR = make("m-anchor", "overlap-local-sgd", 3, 4)
DILOCO = make("m-diloco", "diloco", 3, 4, weights="unequal")
LOCAL = make("m-local", "local-sgd", 3, 4, weights="unequal")
SLOWMO = make("m-slowmo", "slowmo", 3, 4, weights="unequal")
DDP = make("m-ddp", "ddp", 3, 4)
WIRE = make("m-wire", "co2", 3, 7, fragments=3, weights="unequal", penalty=False, wire="bfloat16")
WIRE_PAPER = make("m-wire-paper", "co2-paper", 4, 4, weights="absent", penalty=False, wire="bfloat16")
USUAL = bursts("m-usual", "co2", 3, 7, fragments=2, weights="unequal")
OWN_RATES = make("m-own-rates", "co2", 3, 7, fragments=2, weights="unequal", clip=0.0,
                 more=dict(rate_factors=[1.0, 0.25, 2.0]))
ALL = [PAPER, PAPER_GAP, NORM, KEEP, KEEP_WHOLE, NOBODY, ZEROS, STREAM, ANCHOR, DILOCO, LOCAL, SLOWMO, DDP, WIRE,
       WIRE_PAPER, USUAL, OWN_RATES]


def rule(noticed_by, **methods):
    return noticed_by, methods


def block_late(self, f, count):
    """Fragment boundaries one block further."""
    where = Layout.fragment(self, f, count)
    return slice(where.start and where.start + 16, where.stop if f == count - 1 else where.stop + 16)


def shifted_init(self, case, data):
    Oracle.__init__(self, case, data)
    for f, fragment in enumerate(self.fragments):
        fragment.where = block_late(self.layout, f, self.round.P)


def cut_to_8_bits(values):
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.trunc(np.ldexp(fraction, 8)), exponent - 8)


MUTATIONS = {
    "no clip": rule([PAPER, NORM, KEEP], clip=lambda self, m: m),
    "clip by norm is clip by value": rule([NORM], clip=lambda self, m: np.clip(m, -self.o["clip"], self.o["clip"])),
    "a limit one percent higher": rule(
        [PAPER, KEEP], clip=lambda self, m: np.clip(m, -1.01 * self.o["clip"], 1.01 * self.o["clip"])),
    "gap is one": rule([PAPER, PAPER_GAP], staleness_gap=lambda self, e, f: 1.0),
    "gap is a constant": rule([PAPER_GAP, KEEP_WHOLE], staleness_gap=lambda self, e, f: 1.5),
    "gap without its one": rule(
        [PAPER_GAP], staleness_gap=lambda self, e, f: max(1.0, Oracle.staleness_gap(self, e, f) - 1.0)),
    "apply and launch swapped": rule([PAPER, KEEP_WHOLE, ANCHOR], launches_first=lambda self: not
                                     Oracle.launches_first(self)),
    "another rate on the way out": rule([PAPER, KEEP, SLOWMO], rate_out=lambda self, gamma: 0.99 * gamma),
    "no rate units": rule([PAPER, SLOWMO], rate_in=lambda self, gamma: 1.0, rate_out=lambda self, gamma: 1.0),
    "rate units where there are none": rule([STREAM, DILOCO], __init__=lambda self, case, data: (
        Oracle.__init__(self, case, data), self.o.update(rate_units=True))[0]),
    "the rate of the last step": rule([PAPER, SLOWMO], rates_of=lambda self, since: self.rates(0, self.t - 1)),
    "each worker's own rate": rule([OWN_RATES], agreed_rates=lambda self, weights, rates: rates[0]),
    "rates not weighed": rule([OWN_RATES], agreed_rates=lambda self, weights, rates: sum(rates) / len(rates)),
    "bursts pass": rule([USUAL], burst_factor=lambda self, fragment, exchange: 1.0),
    "bursts are compared without their steps": rule([USUAL], usual_after=lambda self, fragment, steps: fragment.usual),
    "nothing is forgotten of bursts": rule([USUAL], usual_after=lambda self, fragment, steps:
                                           1.02 * Oracle.usual_after(self, fragment, steps)),
    "one rate for all groups": rule([PAPER], per_element=lambda self, values: np.full(self.layout.total, values[0])),
    "weights ignored": rule([PAPER, NORM, KEEP, STREAM, DILOCO, LOCAL, SLOWMO], weight=lambda self, since: 1.0),
    "an absent worker counts as having sent": rule(
        [KEEP], sent=lambda self, worker, fragment, weight: self.x[fragment.where] - worker.live[fragment.where]),
    "a round of nobody counts as sent": rule(
        [NOBODY], sent=lambda self, worker, fragment, weight: self.x[fragment.where] - worker.live[fragment.where]),
    "restart from the consensus instead of keeping": rule([KEEP, KEEP_WHOLE],
                                                          restart=lambda self, live, x, sent, move: x.copy()),
    "mixed the wrong way round": rule([ANCHOR], restart=lambda self, live, x, sent, move:
                                      self.o["mix"] * x + (1 - self.o["mix"]) * live),
    "applied a step late": rule([KEEP, STREAM], due=lambda self, f: Oracle.due(self, f) + 1),
    "launched a step early": rule([KEEP, STREAM, LOCAL],
                                  launch_step=lambda self, f: max(self.round.begin + 1, Oracle.launch_step(self, f) - 1)),
    "fragments one block off": rule([KEEP, STREAM], __init__=shifted_init),
    "finish() of rank 0": rule([KEEP, STREAM, LOCAL], final_mean=lambda self: self.workers[0].live),
    "finish() drops what is in flight": rule(
        [PAPER, KEEP], apply_due=lambda self, everything=False: None if everything else Oracle.apply_due(self)),
    "finish() restarts from the consensus": rule([PAPER], last_restart=lambda self, live, x, sent, move: x),
    "finish() takes back what is no longer there": rule(
        [PAPER], last_restart=lambda self, live, x, sent, move: live + sent - move),
    "no restart in the first round": rule([PAPER], restarts_without_apply=lambda self, f, fragment: False),
    "the wire in full precision": rule([WIRE, WIRE_PAPER], on_the_wire=lambda self, values: values),
    "the wire rounded towards zero": rule([WIRE, WIRE_PAPER], on_the_wire=lambda self, values: cut_to_8_bits(values)),
    "rounded before it is weighed": rule([WIRE], sent=lambda self, worker, fragment, weight:
                                         to_bfloat16(self.x[fragment.where] - worker.live[fragment.where])),
    "what rounding left behind is forgotten": rule([WIRE], sent=lambda self, worker, fragment, weight:
                                                   self.x[fragment.where] - worker.live[fragment.where]),
    "only the sum is rounded": rule([WIRE, WIRE_PAPER], add=lambda self, total, values:
                                    self.on_the_wire(total + values),
                                    sent=lambda self, worker, fragment, weight:
                                    (weight > 0) * (self.x[fragment.where] - worker.live[fragment.where])),
    "the sum is not rounded": rule([WIRE, WIRE_PAPER], add=lambda self, total, values:
                                   total + self.on_the_wire(values)),
    "gradients are not averaged": rule([DDP], __init__=lambda self, case, data: Oracle.__init__(
        self, case | {"strategy": "none"}, data)),
}


def settings(**changed):
    """An oracle whose strategy values are changed."""
    def init(self, case, data):
        Oracle.__init__(self, case, data)
        self.o |= changed
    return init


MUTATIONS |= {
    "heavy ball for Nesterov": rule([STREAM, DILOCO], __init__=settings(nesterov=False)),
    "Nesterov for heavy ball": rule([PAPER, KEEP, ANCHOR, SLOWMO], __init__=settings(nesterov=True)),
    "no momentum": rule([PAPER, KEEP, STREAM, ANCHOR, DILOCO, SLOWMO], __init__=settings(momentum=0.0)),
    "another outer rate": rule([PAPER, KEEP, STREAM, ANCHOR, DILOCO, SLOWMO, LOCAL],
                               __init__=settings(outer_rate=0.99)),
}


@pytest.fixture(scope="module")
def results():
    return replay("in-process", ALL, random_data)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case["name"])
def test_the_rules_themselves_hold(case, results):
    assert (problem := comparing.difference(case, results[case["name"]], random_data(case))) is None, problem


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, (cases, _) in MUTATIONS.items() for case in cases],
                         ids=lambda value: value if isinstance(value, str) else value["name"])
def test_a_wrong_rule_is_noticed(name, case, results):
    wrong = type("Wrong", (Oracle,), MUTATIONS[name][1])
    assert comparing.difference(case, results[case["name"]], random_data(case), wrong) is not None
