"""The comparison can fail: an oracle with one rule changed disagrees with the library where that rule matters."""

import numpy as np
import pytest

import codec
import comparing
from cases import MORE_GROUPS, bursts, falling, growing_unseen, make, not_finite, planned, unfreezing
from codec import to_bfloat16
from layout import Layout
from oracle import Oracle
from replaying import random_data, replay

PAPER = make("m-paper", "co2-paper", 3, 4, weights="unequal", clip=2.5, clip_mode="value")
PAPER_GAP = make("m-paper-gap", "co2-paper", 3, 4, clip=0.0)
NORM = make("m-norm", "co2", 4, 4, fragments=2, clip=60.0, clip_mode="norm", weights="unequal")
KEEP = make("m-keep", "co2", 3, 7, fragments=5, weights="absent", momentum=0.3, clip=2.5,
            clip_mode="value")
KEEP_WHOLE = make("m-keep-whole", "co2", 3, 4, fragments=1, penalty=True, clip=0.0)
NOBODY = make("m-nobody", "co2", 3, 4, fragments=1, weights="nobody", clip=0.0)
ZEROS = make("m-zeros", "co2", 3, 4, fragments=2, schedule="zeros", weights="absent", clip=0.0, momentum=0.3, steps=40)
ZEROS_INT4 = make("m-zeros-int4", "co2", 3, 4, fragments=2, schedule="zeros", clip=0.0, momentum=0.3, steps=40,
                  wire="int4")
STREAM = make("m-stream", "streaming-diloco", 3, 7, weights="unequal")
ANCHOR = make("m-anchor", "overlap-local-sgd", 3, 4)
DILOCO = make("m-diloco", "diloco", 3, 4, weights="unequal")
LOCAL = make("m-local", "local-sgd", 3, 4, weights="unequal")
SLOWMO = make("m-slowmo", "slowmo", 3, 4, weights="unequal")
DDP = make("m-ddp", "ddp", 3, 4)
WIRE = make("m-wire", "co2", 3, 7, fragments=3, weights="unequal", penalty=False, wire="bfloat16")
WIRE_PAPER = make("m-wire-paper", "co2-paper", 4, 4, weights="absent", penalty=False, wire="bfloat16")
USUAL = bursts("m-usual", "co2", 3, 7, fragments=2, weights="unequal")
USUAL_INT2 = bursts("m-usual-int2", "co2", 3, 7, fragments=2, weights="unequal", wire="int2")
UNSURE = growing_unseen("m-unsure", "int2")
# With a burst of everything while only some of it is known.
UNFREEZING = unfreezing("m-unfreezing", weights="unequal",
                        more=dict(gradient_scales=[80.0 if t == 25 else 1.0 for t in range(45)]))
FALLING = falling("m-falling", "bfloat16", 0.0)
FALLING_MOMENTUM = falling("m-falling-momentum", "bfloat16", 0.6)
OWN_RATES = make("m-own-rates", "co2", 3, 7, fragments=2, weights="unequal", momentum=0.3, clip=0.0,
                 more=dict(rate_factors=[1.0, 0.25, 2.0]))
INT8 = make("m-int8", "co2", 3, 7, fragments=3, weights="unequal", outer_rate=0.7, wire="int8")
INT4 = make("m-int4", "co2", 5, 7, fragments=2, weights="unequal", outer_rate=0.7, sizes=MORE_GROUPS, wire="int4")
INT2 = make("m-int2", "co2", 2, 4, fragments=4, weights="unequal", outer_rate=0.7, wire="int2", steps=26,
            finish_after=[11, 26])
INT4_STREAM = make("m-int4-stream", "streaming-diloco", 3, 7, weights="unequal", wire="int4")
# Few fragments as long as the network is fast (1, unless the machine is busy), then 4: what a worker owns changes.
INT4_PLANNED = planned("m-int4-planned", "co2", 3, slow=40000, weights="unequal", wire="int4")
BLOCKS = [INT8, INT4, INT2, INT4_STREAM]
NOT_FINITE = not_finite("m-not-finite", "co2", weights="unequal")
NOT_FINITE_PAPER = not_finite("m-not-finite-paper", "co2-paper", weights="unequal")
NOT_FINITE_INT4 = not_finite("m-not-finite-int4", "co2", "int4", weights="unequal")
NOT_FINITES = [NOT_FINITE, NOT_FINITE_PAPER, NOT_FINITE_INT4]
ALL = [PAPER, PAPER_GAP, NORM, KEEP, KEEP_WHOLE, NOBODY, ZEROS, ZEROS_INT4, STREAM, ANCHOR, DILOCO, LOCAL, SLOWMO, DDP, WIRE,
       WIRE_PAPER, USUAL, USUAL_INT2, UNSURE, UNFREEZING, FALLING, FALLING_MOMENTUM, OWN_RATES, *BLOCKS, INT4_PLANNED, *NOT_FINITES]


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
    "what rounding left of bursts is sent later": rule(
        [USUAL_INT2], drop_what_a_burst_left=lambda self, fragment, exchange, share: None),
    "what is fresh is always known": rule([UNSURE], is_sure=lambda self, counted, whole, left, gamma: True),
    "bursts pass": rule([USUAL, USUAL_INT2], burst_factor=lambda self, fragment, exchange: 1.0),
    "bursts are compared without their steps": rule([USUAL], usual_after=lambda self, fragment, steps: fragment.usual),
    "nothing is forgotten of bursts": rule([USUAL], usual_after=lambda self, fragment, steps:
                                           1.02 * Oracle.usual_after(self, fragment, steps)),
    "what rested is a burst": rule([UNFREEZING], is_known=lambda self, times_sent: times_sent >= 0),
    "what rested is known at once": rule([UNFREEZING], is_known=lambda self, times_sent: times_sent >= 1),
    "what rested is never judged": rule([USUAL], is_known=lambda self, times_sent: times_sent < 0),
    "what rounding left of numbers is of today": rule([FALLING, FALLING_MOMENTUM], rounds=lambda self: self.in_blocks()),
    "momentum moves what nobody trains": rule([ZEROS_INT4], trained=lambda self, fragment, weights: np.ones(
        fragment.where.stop - fragment.where.start, dtype=bool)),
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


def one_block(scale_of=codec.block_scale, rounding=np.rint):
    """A way to code whole fragments with another way to code one block."""
    def coded(self, values, fragment):
        result = np.zeros_like(values)
        for block in self.layout.coded_blocks(fragment.where):
            scale = scale_of(values[block], codec.LARGEST_CODE[self.o["wire"]])
            if scale > 0:
                result[block] = rounding(values[block] * (np.float32(1) / scale)) * scale
        return result
    return coded


def blocks(elements=codec.CODED_BLOCK, stretches=lambda layout, where: layout.stretches(where)):
    """An oracle that cuts fragments into other blocks."""
    class Other(Layout):
        def coded_blocks(self, where):
            for stretch in stretches(self, where):
                for begin in range(stretch.start, stretch.stop, elements):
                    yield slice(begin - where.start, min(begin + elements, stretch.stop) - where.start)

    def init(self, case, data):
        Oracle.__init__(self, case, data)
        self.layout = Other(case["groups"])
    return init


def parameters(layout, where):
    for begin, end in zip([begin for begin, _ in layout.parameters],
                          [begin for begin, _ in layout.parameters[1:]] + [layout.total]):
        yield slice(max(begin, where.start), min(end, where.stop))


def weighed_after_coding(self, worker, fragment, weight):
    d = (self.x[fragment.where] - worker.live[fragment.where]).astype(np.float32)
    return (weight > 0) * self.coded(d, fragment).astype(np.float64)


def nothing_unless_finite(self, worker, fragment, weight):
    d = self.x[fragment.where] - worker.live[fragment.where]
    return Oracle.sent(self, worker, fragment, weight) if np.isfinite(d).all() else np.zeros_like(d)


def finite_elements(self, worker, fragment, weight):
    d = self.x[fragment.where] - worker.live[fragment.where]
    return weight * np.where(np.isfinite(d), d, 0.0) / max(weight, 1.0)


MUTATIONS |= {
    "what a code left behind is forgotten": rule([INT8, INT4, INT2], taken_out=lambda self, worker, fragment, sent:
                                                 self.x[fragment.where] - worker.live[fragment.where]),
    "an owner forgets its rest": rule([*BLOCKS, INT4_PLANNED], left_over=lambda self, weight, total, result: 0),
    "a rest is not weighed": rule(BLOCKS, overdue=lambda self, weight, rest: rest),
    "a rest is kept with its weight": rule(BLOCKS, left_over=lambda self, weight, total, result: total - result),
    "a rest is subtracted": rule(BLOCKS, overdue=lambda self, weight, rest: -weight * rest),
    "the sum of blocks is not coded": rule(BLOCKS, passed_on=lambda self, fragment, total, weight: total),
    "blocks go on across stretches": rule([INT8, INT4, INT4_STREAM],
                                          __init__=blocks(stretches=lambda layout, where: [where])),
    "every parameter begins a block": rule([INT8, INT4, INT2], __init__=blocks(stretches=parameters)),
    "blocks of 32": rule(BLOCKS, __init__=blocks(32)),
    "blocks of 128": rule(BLOCKS, __init__=blocks(128)),
    "codes rounded towards zero": rule(BLOCKS, coded=one_block(rounding=np.trunc)),
    "a scale rounded to nearest": rule(BLOCKS, coded=one_block(lambda block, largest: codec.rounded_to_8_bits(
        np.abs(block).max() / np.float32(largest)))),
    "a scale in full precision": rule(BLOCKS, coded=one_block(lambda block, largest:
                                                              np.abs(block).max() / np.float32(largest))),
    "one code more": rule(BLOCKS, coded=one_block(lambda block, largest: codec.block_scale(block, largest + 1))),
    "weighed when it was coded already": rule([INT8, INT4, INT2], sent=weighed_after_coding),
    "blocks dealt out in turn": rule([INT4_PLANNED], owner=lambda self, block, blocks: block % len(self.workers)),
    "the last worker owns what is left": rule([INT4_PLANNED], owner=lambda self, block, blocks: min(
        block // max(blocks // len(self.workers), 1), len(self.workers) - 1)),
    "another cut takes the rests along": rule([INT4_PLANNED], owner=lambda self, block, blocks: 0),
    "another cut drops the rests": rule([INT4_PLANNED], cut=lambda self, P: (
        self.forget_rests(), Oracle.cut(self, P))[1]),
    "finish() drops the rests": rule(BLOCKS, final_move=lambda self: 0.0),
    "finish() applies the rests at full rate": rule(BLOCKS, final_move=lambda self: self.rests.sum(axis=0)),
    "finish() averages the rests": rule(BLOCKS, final_move=lambda self: self.o["outer_rate"] * self.rests.mean(axis=0)),
    "finish() keeps the rests": rule([INT2], forget_rests=lambda self: None),
    "who is not finite takes part": rule(NOT_FINITES, takes_part=lambda self, d: True),
    "who is not finite keeps its weight": rule(NOT_FINITES, takes_part=lambda self, d: True,
                                               sent=nothing_unless_finite),
    "only elements that are not finite are left out": rule([NOT_FINITE, NOT_FINITE_PAPER],
                                                           takes_part=lambda self, d: True, sent=finite_elements),
    "who is not finite counts as having sent": rule(
        [NOT_FINITE, NOT_FINITE_INT4], taken_out=lambda self, worker, fragment, sent:
        np.nan_to_num(self.x[fragment.where] - worker.live[fragment.where], posinf=0.0, neginf=0.0)),
    "finish() averages what is not finite": rule(NOT_FINITES, is_averaged=lambda self, live: True),
}


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


def test_the_plan_has_changed_what_a_worker_owns(results):
    """Otherwise the mutations of owners could not be noticed."""
    fragments = [P for _, P in results[INT4_PLANNED["name"]].plan[3:]]
    assert len(set(fragments)) > 1, fragments


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, (cases, _) in MUTATIONS.items() for case in cases],
                         ids=lambda value: value if isinstance(value, str) else value["name"])
def test_a_wrong_rule_is_noticed(name, case, results):
    wrong = type("Wrong", (Oracle,), MUTATIONS[name][1])
    assert comparing.difference(case, results[case["name"]], random_data(case), wrong) is not None
