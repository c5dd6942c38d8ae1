"""What the rules must give on problems that can be solved on paper, without the oracle.

The workers minimise a x^2 / 2 from x = 1 with gradient descent of rate gamma, so a step multiplies live by
q = 1 - gamma a, and a round of tau steps contracts by c = 1 - q^tau.
"""

import math

import numpy as np
import pytest

import codec
import comparing
from cases import BLOCK_WIRES, make
from layout import Layout
from replaying import Data, numel, random_data, replay, replay_files

RATE = 0.1


def curvature_for(contraction, tau):
    return (1 - (1 - contraction) ** (1 / tau)) / RATE


def quadratic(name, strategy, workers, tau, contractions, steps, **options):
    """A case with one element per contraction, and its data: start at 1, minimum at 0."""
    case = make(name, strategy, workers, tau, steps=steps, sizes=([len(contractions)],), schedule="constant", **options)
    case["groups"][0]["rates"] = [RATE] * steps
    case["finish_after"] = [steps]
    size = len(contractions)
    return case, Data(np.ones(size), [curvature_for(c, tau) for c in contractions], np.zeros((workers, steps, size)))


def run(*problems):
    data = {case["name"]: its for case, its in problems}
    return replay("in-process", [case for case, _ in problems], lambda case: data[case["name"]])


def contraction_in_float32(data, tau):
    """c as the library sees it: from the curvature after it was rounded to float32."""
    return 1 - (1 - RATE * data.curvature.astype(np.float64)) ** tau


def envelope(values, begin, end):
    return np.abs(values[begin:end]).max(axis=0)


@pytest.mark.parametrize(("beta", "alpha"), [(0.0, 1.2), (0.2, 1.0), (0.5, 0.8), (0.7, 0.5)])
def test_the_papers_rule_is_stable_just_inside_its_bound_and_not_outside(beta, alpha):
    """Without the penalty: beta + alpha c = 0.98 converges, 1.02 diverges, at the rate sqrt(beta + alpha c)."""
    tau, rounds = 4, 300
    sums = np.array([0.98, 1.02])
    case, data = quadratic("bound", "co2-paper", 3, tau, list((sums - beta) / alpha), tau * rounds, momentum=beta,
                           outer_rate=alpha, penalty=False, clip=0.0)
    x = run((case, data))["bound"].consensus[tau - 1:tau * rounds:tau, 0, :2]
    early, late = envelope(x, 50, 100), envelope(x, 250, 300)
    assert late[0] < early[0] / 2
    assert late[1] > early[1] * 2
    np.testing.assert_allclose((late / early) ** (1 / 200), np.sqrt(sums), rtol=2e-3)


def test_the_penalty_makes_it_stable():
    """The same unstable quadratic converges once progress is divided by its staleness gap, which is then above one."""
    tau, rounds = 4, 300
    common = dict(momentum=0.2, outer_rate=1.0, clip=0.0)
    wild = quadratic("wild", "co2-paper", 3, tau, [0.82], tau * rounds, penalty=False, **common)
    tame = quadratic("tame", "co2-paper", 3, tau, [0.82], tau * rounds, penalty=True, **common)
    results = run(wild, tame)
    x = {name: result.consensus[tau - 1:tau * rounds:tau, 0, :1] for name, result in results.items()}
    assert envelope(x["wild"], 250, 300) > 2
    assert envelope(x["tame"], 250, 300) < 1e-3


def test_co2_paper_alone_follows_its_delayed_recursion():
    """x_{t+1} = (1 + beta) x_t - (beta + alpha c) x_{t-1}: two roots, two constants from the first two rounds."""
    tau, rounds, beta, alpha = 4, 40, 0.2, 0.8
    case, data = quadratic("paper", "co2-paper", 1, tau, [0.2, 0.5, 0.9], tau * rounds, momentum=beta, outer_rate=alpha,
                           penalty=False, clip=0.0)
    c = contraction_in_float32(data, tau)
    measured = run((case, data))["paper"].consensus[tau - 1:tau * rounds:tau, 0, :3]
    # Nothing has arrived after the first round: x_1 = x_0 = 1, so the first two exchanges are alike.
    x2 = 1 - alpha * c
    x3 = x2 - alpha * (beta * c + c)
    assert np.array_equal(measured[0], np.ones(3))
    discriminant = np.emath.sqrt((1 + beta) ** 2 - 4 * (beta + alpha * c))
    one, two = (1 + beta + discriminant) / 2, (1 + beta - discriminant) / 2
    p = (x3 - two * x2) / (one - two)
    bound = comparing.UNITS * np.spacing(np.abs(measured).max())
    for t in range(2, rounds + 1):
        expected = (p * one ** (t - 2) + (x2 - p) * two ** (t - 2)).real
        np.testing.assert_allclose(measured[t - 1], expected, rtol=0, atol=bound)


@pytest.mark.parametrize(("fragments", "delay"), [(1, None), (2, None), (2, 2), (2, 10)])
def test_co2_alone_follows_its_recursion(fragments, delay):
    """Between launches the state (x, live, u = gamma m) is multiplied by one 3 x 3 matrix, whose powers are known."""
    tau, rounds, beta, alpha, size = 10, 12, 0.3, 0.9, 32
    contractions = np.linspace(0.1, 0.95, size)
    options = {} if delay is None else {"delay": delay}
    case, data = quadratic("keep", "co2", 1, tau, list(contractions), tau * rounds, fragments=fragments, momentum=beta,
                           outer_rate=alpha, clip=0.0, **options)
    result = run((case, data))["keep"]
    q = 1 - RATE * data.curvature.astype(np.float64)
    wait = delay or tau // fragments
    bound = comparing.UNITS * np.spacing(np.abs(result.live).max())
    for element in range(size):
        fragment = element * fragments // size
        launch = (fragment + 1) * tau // fragments
        before, after = q[element] ** wait, q[element] ** (tau - wait)
        # s = x - live;  u' = beta u + s;  x' = x - alpha u';  live' = (before live + s - alpha u') after
        u = np.array([1.0, -1.0, beta])
        x = np.array([1.0, 0.0, 0.0]) - alpha * u
        live = (np.array([0.0, before, 0.0]) + np.array([1.0, -1.0, 0.0]) - alpha * u) * after
        values, vectors = np.linalg.eig(np.stack([x, live, u]))
        start = np.linalg.solve(vectors, np.array([1.0, q[element] ** launch, 0.0], dtype=complex))
        for k in range(0, (tau * rounds - launch) // tau):
            expected = (vectors @ (values ** k * start)).real
            at = launch + k * tau - 1
            assert abs(result.consensus[at, 0, element] - expected[0]) < bound
            assert abs(result.live[at, 0, element] - expected[1]) < bound


def pairs(result, snapshots):
    return [(result.live[i].astype(np.float64), result.consensus[i].astype(np.float64)) for i in snapshots]


def test_slowmo_without_momentum_is_local_sgd():
    slowmo = make("slowmo", "slowmo", 4, 7, weights="unequal", inner_momentum=0.9, momentum=0.0)
    local = make("local", "local-sgd", 4, 7, weights="unequal", inner_momentum=0.9)
    results = replay("in-process", [slowmo, local], random_data)
    seen = comparing.units(slowmo, results["slowmo"], pairs(results["local"], range(slowmo["steps"] + 1)),
                           random_data(slowmo))
    # SlowMo divides the mean by the rate and multiplies it back.
    assert (seen <= 2).all(), seen


def test_local_sgd_at_every_step_is_synchronous_sgd():
    local = make("local", "local-sgd", 4, 1, steps=20)
    ddp = make("ddp", "ddp", 4, 1, steps=20)
    results = replay("in-process", [local, ddp], random_data)
    seen = comparing.units(local, results["local"], pairs(results["ddp"], range(21)), random_data(local))
    assert (seen <= comparing.UNITS).all(), seen


@pytest.mark.parametrize("strategy", ["none", "ddp"])
def test_a_single_worker_is_plain_training_bit_for_bit(strategy):
    case = make("alone", strategy, 1, 4, steps=20, inner_momentum=0.9, decay=0.01)
    library = replay("in-process", [case], random_data)["alone"]

    def packed(item, folder):
        return np.fromfile(folder / "alone" / "rank0.bin", "<f4").reshape(case["steps"], numel(item))

    plain = replay_files("plain", [case], random_data, packed)["alone"]
    keep = ~Layout(case["groups"]).padding()
    assert math.isfinite(plain.sum())
    assert np.array_equal(library.live[:20, 0][:, keep].view(np.uint32), plain.view(np.uint32))


@pytest.mark.parametrize(("values", "largest", "expected"), [
    ([1.0, -0.75, 0.25, 0.5, -0.5], 1, [1.0, -1.0, 0.0, 0.0, 0.0]),  # ties to even
    ([7.0, 2.5, 3.5, -2.5, 0.25], 7, [7.0, 2.0, 4.0, -2.0, 0.0]),
    ([1 + 2.0 ** -20, -1.0], 1, [1 + 2.0 ** -7, -1 - 2.0 ** -7]),  # a scale is rounded up
    ([1.0, 2.0 ** -90, 0.004], 127, [126 * 130 * 2.0 ** -14, 0.0, 130 * 2.0 ** -14]),  # 2^14 / 127 is 129.01
    ([2.0 ** -100, -2.0 ** -101], 1, [2.0 ** -100, 0.0]),  # the smallest scale
    ([np.nextafter(np.float32(2.0 ** -100), np.float32(0)), 0.0], 1, [0.0, 0.0]),
    ([0.0, -0.0], 127, [0.0, 0.0])])
def test_how_the_oracle_codes_a_block(values, largest, expected):
    """Worked out by hand from docs/wire.md."""
    assert np.array_equal(codec.coded(np.array(values, np.float32), largest), np.array(expected, np.float32))


@pytest.mark.parametrize("wire", ["plain", *BLOCK_WIRES])
def test_no_progress_is_ever_lost_on_the_wire(wire):
    """With gradients that do not depend on the parameters, the workers' mean is known without any exchange. What
    rounding leaves behind, on workers and on owners, arrives in later rounds or in finish(): however few the bits, that
    mean is what finish() gives."""
    tau, steps, workers = 7, 40, 5
    case = make("lossless", "co2", workers, tau, steps=steps, finish_after=[17, steps], fragments=3, momentum=0.0,
                clip=0.0, wire=wire)
    known = random_data(case)
    data = Data(known.initial, np.zeros_like(known.curvature), known.targets)
    result = run((case, data))["lossless"]
    layout = Layout(case["groups"])
    moves = layout.flat(data.targets[:workers].astype(np.float64).mean(axis=0))[:steps]
    for (begin, end), group in zip(layout.parameters, layout.group_of):
        moves[:, begin:end] *= np.array(case["groups"][group]["rates"])[:, None]
    bound = comparing.UNITS * np.spacing(np.abs(result.live).max())
    for snapshot, step in zip(comparing.after_finish(case), case["finish_after"]):
        for live in result.live[snapshot]:
            np.testing.assert_allclose(live, layout.flat(data.initial) + moves[:step].sum(axis=0), rtol=0, atol=bound)


@pytest.mark.parametrize("wire", BLOCK_WIRES)
def test_owners_add_in_the_order_of_ranks(wire):
    """2^26 - 2^26 + 1 is 1 in this order only: in float32, others lose the 1. Each of the workers owns a block."""
    case = make("order", "co2", 3, 1, steps=2, sizes=([192],), schedule="constant", fragments=1, clip=0.0, wire=wire)
    case["groups"][0]["rates"] = [1.0, 1.0]
    targets = np.zeros((3, 2, 192))
    targets[:, 0] = np.array([2.0 ** 26, -2.0 ** 26, 1.0])[:, None]
    result = run((case, Data(np.zeros(192), np.zeros(192), targets)))["order"]
    np.testing.assert_allclose(result.consensus[1], np.full((3, 192), 1 / 3), rtol=0.02)
