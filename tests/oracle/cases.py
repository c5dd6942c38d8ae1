"""The cases that the library is compared on: a systematic list, the same in every run."""

import itertools
import math

STRATEGIES = ("none", "ddp", "local-sgd", "slowmo", "diloco", "streaming-diloco", "eager-diloco",
              "overlap-local-sgd", "co2-paper", "co2")
EXCHANGING = STRATEGIES[2:]
WORKERS = (3, 4, 7)
TAUS = (4, 10, 7)
ODD_SIZES = ([3, 1025, 0], [1, 1023])  # two parameter groups
MORE_GROUPS = ([70], [1, 64], [0], [300, 5])
BLOCK_WIRES = ("int8", "int4", "int2")
MOST_WORKERS, MOST_STEPS = 7, 48
RESTART = 0.02


def rates(kind, peak, steps):
    """An inner rate for each step."""
    if kind == "constant":
        return [peak] * steps
    warm = [peak * min(1.0, (t + 1) / 5) * (0.55 + 0.45 * math.cos(math.pi * t / steps)) for t in range(steps)]
    if kind == "warm-up":
        return warm
    if kind == "zeros":  # nothing positive at first, and pauses later on, some for whole rounds
        return [0.0 if t < 2 or t % 7 in (3, 6) or 8 <= t < 14 else rate for t, rate in enumerate(warm)]
    if kind == "to-zero":
        return [peak * 0.5 * (1 + math.cos(math.pi * (t + 1) / steps)) for t in range(steps)]
    if kind == "restarts":  # many times the rate, all at once, and back
        return [peak * (1.0 if t // 9 % 2 else RESTART) for t in range(steps)]
    raise ValueError(kind)


def samples(kind, workers, steps, tau):
    """The weight that each worker gives to each step."""
    if kind == "equal":
        return [[1.0] * steps for _ in range(workers)]
    if kind == "unequal":
        return [[1.0 + (3 * w + 5 * t) % 7 for t in range(steps)] for w in range(workers)]
    if kind == "absent":  # in each round of tau steps another worker sits out
        return [[0.0 if (t // tau) % workers == w else 1.0 + w for t in range(steps)] for w in range(workers)]
    if kind == "nobody":  # rounds to which nobody gives any weight
        return [[0.0 if t // tau in (1, 2) else 2.0 + w for t in range(steps)] for w in range(workers)]
    raise ValueError(kind)


def make(name, strategy, workers, tau, *, steps=None, weights="equal", schedule="warm-up", inner_momentum=0.0,
         decay=0.0, finish_after=None, sizes=ODD_SIZES, without_gradient=(), more=None, **options):
    steps = steps or 3 * tau + tau // 2 + 1  # ends in the middle of a round
    if strategy in ("none", "ddp"):
        weights = "equal"
    kinds = (schedule, "constant" if schedule == "warm-up" else schedule)
    groups = [dict(sizes=list(part), rates=rates(kinds[g % 2], (0.12, 0.05)[g % 2], steps),
                   momentum=inner_momentum, weight_decay=decay if g % 2 == 0 else 0.0)
              for g, part in enumerate(sizes)]
    return dict(name=name, strategy=strategy, workers=workers, steps=steps, groups=groups,
                samples=samples(weights, workers, steps, tau), finish_after=finish_after or [steps],
                without_gradient=list(without_gradient), options=dict(local_steps=tau, **options), **(more or {}))


def rotate(values):
    return itertools.cycle(values).__next__


def strategy_cases():
    """Every strategy as it comes, for every number of workers and every tau."""
    weights, schedule = rotate(("equal", "unequal", "absent", "nobody")), rotate(("warm-up", "constant", "zeros"))
    momentum, bucket = rotate((0.0, 0.9, 0.0, 0.6, 0.3)), rotate((25 << 20, 1024))
    for strategy, workers, tau in itertools.product(STRATEGIES, WORKERS, TAUS):
        inner = momentum()
        yield make(f"{strategy}-{workers}-{tau}", strategy, workers, tau, weights=weights(), schedule=schedule(),
                   inner_momentum=inner, decay=0.01 if inner else 0.0, bucket_bytes=bucket())


def option_cases():
    """The mechanism's own axes, in full: restart x fragments x tau x penalty x clip; the rest takes turns."""
    weights, schedule = rotate(("unequal", "absent", "equal", "nobody", "unequal")), rotate(("warm-up", "zeros"))
    beta, nesterov, alpha = rotate((0.3, 0.0, 0.6)), rotate((False, False, True, False, True)), rotate((1.0, 0.7))
    workers, place = rotate(WORKERS), rotate(range(5))
    for restart, fragments, tau in itertools.product(("paper", "keep", "mix"), (1, 2, 5), TAUS):
        if fragments > tau:
            continue
        for penalty, (mode, phi) in itertools.product((True, False), (("value", 2.5), ("norm", 60.0), ("usual", 1.05),
                                                                      ("value", 0.0))):
            delays = (None, 0, tau) if restart == "paper" else (None, 0, 1, tau // 2, tau)
            chosen = delays[place() % len(delays)]
            extra = {} if chosen is None else {"delay": chosen}
            if restart == "mix":
                extra["mix"] = 0.35
            if phi:
                extra["clip_mode"] = mode
            clip = f"{mode}{phi:g}" if phi else "off"
            gap = "gap" if penalty else "nogap"
            yield make(f"{restart}-P{fragments}-tau{tau}-{gap}-{clip}", "co2", workers(), tau, weights=weights(),
                       schedule=schedule(), restart=restart, fragments=fragments, penalty=penalty, clip=phi,
                       momentum=beta(), nesterov=nesterov(), outer_rate=alpha(), **extra)


def special_cases():
    """Shapes and moments that the lists above do not reach."""
    for strategy in STRATEGIES:
        # finish() in the middle of a round, and training goes on; a parameter that never has a gradient
        yield make(f"{strategy}-goes-on", strategy, 3, 7, weights="unequal", finish_after=[10, 26], steps=26,
                   without_gradient=[1])
        # finish() right after a launch; and a model smaller than its fragments
        yield make(f"{strategy}-tiny", strategy, 4, 5, finish_after=[5, 15], steps=15, sizes=([0, 3], [1]),
                   **({} if strategy in ("none", "ddp", "eager-diloco") else {"fragments": 5}))
        yield make(f"{strategy}-every-step", strategy, 3, 1, steps=6)
        yield make(f"{strategy}-alone", strategy, 1, 4, weights="unequal")
    yield make("ddp-accumulates", "ddp", 3, 4, accumulation_steps=2, bucket_bytes=1024)
    yield make("co2-accumulates", "co2", 3, 4, accumulation_steps=2)


def wire_cases():
    """Rounded to bfloat16 on the wire. Without norms, which would carry one element's rounding to all the others."""
    weights = rotate(("unequal", "absent", "equal", "nobody"))
    for restart, workers, tau in itertools.product(("keep", "mix", "paper"), WORKERS, (4, 7)):
        yield make(f"wire-{restart}-{workers}-{tau}", "co2", workers, tau, weights=weights(), restart=restart,
                   fragments=1 if restart == "paper" else 3, penalty=False, wire="bfloat16", bucket_bytes=1024,
                   **({"mix": 0.35} if restart == "mix" else {}))
    for strategy, workers in itertools.product(("local-sgd", "diloco", "slowmo"), WORKERS):
        yield make(f"wire-{strategy}-{workers}", strategy, workers, 4, weights=weights(), wire="bfloat16")
    yield make("wire-goes-on", "co2", 3, 7, weights="unequal", finish_after=[10, 26], steps=26, wire="bfloat16")


def block_cases():
    """Blocks of a few bits on the wire: for the restarts that keep what rounding leaves behind."""
    weights = rotate(("unequal", "absent", "equal", "nobody"))
    tau, fragments, schedule = rotate(TAUS), rotate((4, 1, 3, 2)), rotate(("warm-up", "constant", "zeros"))
    sizes, beta, bucket = rotate((ODD_SIZES, ODD_SIZES, MORE_GROUPS)), rotate((0.3, 0.0, 0.6)), rotate((25 << 20, 1024))
    for workers, wire in itertools.product((1, 2, 3, 5, 7), BLOCK_WIRES):
        yield make(f"{wire}-{workers}", "co2", workers, tau(), weights=weights() if workers > 1 else "unequal",
                   schedule=schedule(), sizes=sizes(), inner_momentum=beta(), fragments=fragments(), momentum=beta(),
                   bucket_bytes=bucket(), wire=wire)
    for wire in BLOCK_WIRES:
        # As they come, also those whose restart drops what rounding leaves behind.
        for strategy, workers in itertools.product(("co2", "streaming-diloco", "overlap-local-sgd"), (2, 3)):
            yield make(f"{wire}-{strategy}-{workers}", strategy, workers, 7, weights=weights(), inner_momentum=0.3,
                       steps=40, wire=wire)
        yield make(f"{wire}-mix", "co2", 5, 7, weights=weights(), fragments=3, restart="mix", mix=0.35, wire=wire)
        # finish() in the middle of a round, and right after a launch; a parameter that never has a gradient
        yield make(f"{wire}-goes-on", "co2", 3, 7, weights="unequal", finish_after=[10, 14, 26], steps=26,
                   without_gradient=[1], outer_rate=0.7, wire=wire)
        # Fragments smaller than a block, and empty ones; several groups in one block's worth of elements
        yield make(f"{wire}-tiny", "co2", 4, 5, finish_after=[5, 15], steps=15, sizes=([0, 3], [1]), fragments=5,
                   wire=wire)
        yield make(f"{wire}-small", "co2", 3, 10, weights="unequal", sizes=([20, 7], [65], [3, 3]), fragments=8,
                   momentum=0.6, wire=wire)
        yield make(f"{wire}-one-group", "co2", 7, 4, weights=weights(), sizes=([1, 129, 64],), wire=wire)
        yield make(f"{wire}-every-step", "co2", 3, 1, steps=12, wire=wire)
        for delay in (1, 3, 7):
            yield make(f"{wire}-delay{delay}", "co2", 3, 7, weights=weights(), fragments=2, delay=delay, wire=wire)
        for mode, phi in (("value", 2.5), ("norm", 20.0)):
            yield make(f"{wire}-{mode}", "co2", 3, 7, weights=weights(), schedule="zeros", fragments=3, momentum=0.5,
                       nesterov=True, clip=phi, clip_mode=mode, wire=wire)
        yield bursts(f"{wire}-bursts", "co2", 3, 7, fragments=2, weights="unequal", wire=wire)
        yield make(f"{wire}-own-rates", "co2", 4, 7, weights=weights(), momentum=0.4, wire=wire,
                   more=dict(rate_factors=[1.0, 0.25, 2.0, 0.0]))
        yield make(f"{wire}-accumulates", "co2", 3, 4, accumulation_steps=2, wire=wire)
        # Without norms, which would carry one element's rounding to all the others
        yield make(f"{wire}-blocking", "co2", 3, 7, weights=weights(), fragments=2, delay=0, clip=0.0, wire=wire)


def not_finite(name, strategy, wire="plain", workers=3, **options):
    """One worker loses an element of a fragment in the middle of a round, and another worker one just before finish().
    Restart `paper` mends them in the round, the others in finish(); the last one is there at the end."""
    return make(name, strategy, workers, 7, steps=30, finish_after=[18, 30], wire=wire,
                more=dict(not_finite=[[1, 4, 40, "nan"], [2, 16, 1500, "inf"], [0, 28, 2000, "-inf"]]), **options)


def not_finite_cases():
    """Whoever is not finite is left out."""
    for strategy in EXCHANGING:
        yield not_finite(f"{strategy}-not-finite", strategy, weights="unequal")
    yield not_finite("bfloat16-not-finite", "co2", "bfloat16", penalty=False)
    for wire in BLOCK_WIRES:
        yield not_finite(f"{wire}-not-finite", "co2", wire, weights="unequal", fragments=3)
    yield not_finite("int4-mix-not-finite", "streaming-diloco", "int4")


def edge_cases():
    """Schedules that end at zero or jump, rates that differ between workers, gradients of another scale."""
    weights = rotate(("equal", "unequal", "absent"))
    for strategy, schedule in itertools.product(("slowmo", "co2-paper", "co2"), ("to-zero", "restarts")):
        # Momentum carries the rounding of small progress into rounds of a higher rate.
        more = dict(rounding=1 / RESTART if schedule == "restarts" else 1.0)
        yield make(f"{strategy}-{schedule}", strategy, 3, 7, steps=40, weights=weights(), schedule=schedule, more=more)
        yield make(f"{strategy}-{schedule}-momentum", strategy, 3, 7, steps=40, weights=weights(), schedule=schedule,
                   momentum=0.6, more=more)
    for strategy in EXCHANGING:
        yield make(f"{strategy}-own-rates", strategy, 4, 7, weights=weights(), momentum=0.4,
                   more=dict(rate_factors=[1.0, 0.25, 2.0, 0.0]))
    for strategy, scale in itertools.product(("slowmo", "co2-paper", "co2"), (1e-4, 1e3)):
        case = make(f"{strategy}-gradients-{scale:g}", strategy, 3, 7, weights=weights(), inner_momentum=0.5,
                    more=dict(gradient_scales=[scale] * MOST_STEPS))
        for group in case["groups"]:  # as strong as elsewhere
            group["rates"] = [rate / scale for rate in group["rates"]]
        yield case
    for strategy, tau in itertools.product(("co2-paper", "co2"), (4, 7)):
        yield bursts(f"{strategy}-bursts-{tau}", strategy, 3, tau, weights=weights())


def with_rates_of_the_last_group(case, factor_of):
    """Its schedule, times a factor for each step."""
    group = case["groups"][-1]
    group["rates"] = [rate * factor_of(step) for step, rate in enumerate(group["rates"])]
    return case


def unfreezing(name, strategy="co2", workers=3, tau=4, **options):
    """Most elements rest at first, and move after some rounds; `clip` is close to what they do then."""
    options = dict(steps=45, fragments=1, clip=1.5, schedule="constant", sizes=([30], [7, 1200])) | options
    return with_rates_of_the_last_group(make(name, strategy, workers, tau, **options), lambda step: float(step >= 22))


def falling(name, wire, momentum, more=(), **options):
    """The rate of a group falls by far, and rises again: what rounding left meanwhile is of another time."""
    low = 1e-3 if momentum else 1e-5  # momentum carries the rounding of small progress into rounds of a higher rate
    case = make(name, "co2", 2, 4, steps=45, fragments=1, schedule="constant", momentum=momentum, wire=wire,
                more=dict(more, rounding=1 / low if momentum else 1.0), **options)
    return with_rates_of_the_last_group(case, lambda step: low if 18 <= step < 34 else 1.0)


def growing_unseen(name, wire):
    """Gradients grow while the rate is so low that what rounding left before outweighs them."""
    return falling(name, wire, 0.0, more=dict(gradient_scales=[16.0 if t >= 22 else 1.0 for t in range(45)]),
                   sizes=([30], [7, 1200]))


def unfreezing_cases():
    weights = rotate(("equal", "unequal", "absent", "nobody"))
    for strategy, wire in (("co2", "plain"), ("co2-paper", "plain"), ("co2", "bfloat16"), ("co2", "int8"),
                           ("co2", "int2")):
        yield unfreezing(f"unfreezing-{strategy}-{wire}", strategy, weights=weights(), wire=wire, penalty=False)
    yield unfreezing("unfreezing-momentum", weights="unequal", momentum=0.6)
    yield unfreezing("unfreezing-mix", weights="unequal", restart="mix", mix=0.35)
    yield unfreezing("unfreezing-fragments", tau=7, weights="absent", fragments=3)
    yield unfreezing("unfreezing-goes-on", weights="unequal", finish_after=[17, 27, 45])
    for wire, momentum in itertools.product(("bfloat16", "int4"), (0.0, 0.6)):
        yield falling(f"falling-{wire}-{momentum}", wire, momentum)
    for wire in ("int8", "int4", "int2"):
        yield growing_unseen(f"growing-unseen-{wire}", wire)


def bursts(name, strategy, workers, tau, **options):
    """A gradient that is now and then far larger than usual, and a finish() that makes a round short."""
    return make(name, strategy, workers, tau, steps=40, finish_after=[18, 40],
                more=dict(gradient_scales=[80.0 if t % 11 == 10 else 1.0 for t in range(40)]), clip=1.5, **options)


def planned_cases():
    """Local steps that are chosen while training: the oracle follows the plan that the library has made."""
    for strategy, weights, options in (("co2", "unequal", {}), ("co2", "absent", dict(fragments=2, momentum=0.5)),
                                       ("co2", "equal", dict(fragments=3, clip=1.05)), ("local-sgd", "unequal", {}),
                                       ("co2-paper", "unequal", dict(penalty=False))):
        yield planned(f"planned-{strategy}-{weights}", strategy, 3, weights=weights, **options)
    for wire, workers in (("int8", 3), ("int4", 2), ("int2", 3)):
        yield planned(f"planned-{wire}", "co2", workers, weights="unequal", wire=wire)


def planned(name, strategy, workers, slow=9000, **options):
    """`slow`: microseconds of the network's slow times."""
    case = make(name, strategy, workers, 7, steps=MOST_STEPS, schedule="warm-up", exchange_share=1.0,
                max_local_steps=16,
                more=dict(step_microseconds=1500, wire_microseconds=[50, slow], wire_turn=24), **options)
    del case["options"]["local_steps"]
    return case


IN_PROCESS = [*strategy_cases(), *option_cases(), *special_cases(), *wire_cases(), *block_cases(), *not_finite_cases(),
              *edge_cases(), *unfreezing_cases(), *planned_cases()]
assert len({case["name"] for case in IN_PROCESS}) == len(IN_PROCESS)


def gloo_cases():
    """For real processes: every strategy as it comes, and the mechanism's own axes, each value of them at least once."""
    for workers, tau, weights, schedule in ((3, 4, "unequal", "warm-up"), (4, 7, "absent", "zeros"),
                                            (7, 10, "nobody", "constant")):
        for strategy in STRATEGIES:
            yield make(f"gloo-{strategy}-{workers}", strategy, workers, tau, weights=weights, schedule=schedule,
                       inner_momentum=0.5, bucket_bytes=2048)
    for workers, fragments, restart, schedule, clip in (
            (3, 1, "keep", "constant", dict(clip=60.0, clip_mode="norm")),
            (3, 2, "mix", "zeros", dict(clip=2.5, clip_mode="value")),
            (4, 5, "keep", "warm-up", dict(clip=60.0, clip_mode="norm")),
            (4, 1, "paper", "zeros", dict(clip=60.0, clip_mode="norm")),
            (7, 2, "keep", "zeros", dict(clip=2.5, clip_mode="value")),
            (7, 5, "keep", "constant", dict(clip=60.0, clip_mode="norm"))):
        yield make(f"gloo-{restart}-P{fragments}-{workers}", "co2", workers, 7, weights="unequal", schedule=schedule,
                   restart=restart, fragments=fragments, bucket_bytes=1024, **clip,
                   **({"mix": 0.35} if restart == "mix" else {}))
    for workers, wire, weights, options in ((2, "int8", "unequal", {}), (2, "int2", "absent", dict(sizes=MORE_GROUPS)),
                                            (3, "int8", "absent", dict(fragments=3)), (3, "int4", "unequal", {}),
                                            (3, "int2", "nobody", dict(sizes=([20, 7], [65], [3, 3]), fragments=7)),
                                            (5, "int4", "unequal", dict(sizes=MORE_GROUPS, momentum=0.6)),
                                            (7, "int8", "nobody", dict(fragments=2)), (7, "int2", "unequal", {})):
        yield make(f"gloo-{wire}-{workers}", "co2", workers, 7, weights=weights, finish_after=[12, 25], steps=25,
                   inner_momentum=0.5, wire=wire, **options)
    yield make("gloo-int4-mix", "streaming-diloco", 4, 7, weights="unequal", wire="int4")
    yield not_finite("gloo-not-finite", "co2", weights="unequal")
    yield not_finite("gloo-int8-not-finite", "co2", "int8", weights="unequal")


GLOO = [*gloo_cases()]
# Two workers: with more, the order in which Gloo's ring adds up, and so what is rounded, differs from place to place.
GLOO_WIRE = [make(f"gloo-wire-{strategy}", strategy, 2, 4, weights="unequal", bucket_bytes=2048, wire="bfloat16")
             for strategy in ("co2", "streaming-diloco", "slowmo")]
