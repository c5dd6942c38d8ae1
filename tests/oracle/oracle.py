"""The rules of docs/algorithm.md in float64, written to be read next to that page and independently of the library.

Nothing here is clever: every worker holds its live parameters, every fragment its consensus x, its momentum m and its
exchanges in flight, and each rule is one small method, so that a test can replace one and see the comparison fail.
"""

import numpy as np

BLOCK = 16  # each parameter, and each fragment, starts at a multiple of this many elements

# The strategies' own values; a case overrides any of them. "fragments" and "clip" may depend on local_steps (tau).
COMMON = dict(fragments=1, delay=None, outer_rate=1.0, momentum=0.0, nesterov=False, penalty=False, clip=0.0,
              clip_mode="value", restart="paper", mix=0.0, rate_units=False, wire="plain")


def strategy_values(strategy, tau):
    own = {
        "none": {},
        "ddp": {},
        "local-sgd": dict(delay=0),
        "slowmo": dict(delay=0, momentum=0.5, rate_units=True),
        "diloco": dict(delay=0, outer_rate=0.7, momentum=0.9, nesterov=True),
        "streaming-diloco": dict(fragments=min(4, tau), outer_rate=0.7, momentum=0.9, nesterov=True, restart="mix",
                                 mix=0.5),
        "overlap-local-sgd": dict(momentum=0.7, restart="mix", mix=0.4),
        "co2-paper": dict(momentum=0.2, penalty=True, clip=float(tau), rate_units=True),
        "co2": dict(fragments=min(4, tau), momentum=0.3, penalty=True, clip=float(tau), restart="keep",
                    rate_units=True),
    }
    return COMMON | own[strategy]


def to_bfloat16(values):
    """The nearest number with 8 significant bits, ties to even; a float64 becomes a float32 first."""
    return rounded_to_8_bits(values.astype(np.float32).astype(np.float64))


def rounded_to_8_bits(values):
    fraction, exponent = np.frexp(values)  # 0.5 <= |fraction| < 1
    return np.ldexp(np.rint(np.ldexp(fraction, 8)), exponent - 8)


class Layout:
    """Where each parameter stands in the flat order, and which elements each fragment covers."""

    def __init__(self, groups):
        self.parameters = []  # (begin, end) in flat elements, groups in order, parameters in order inside
        self.group_of = []
        cursor = 0
        for index, group in enumerate(groups):
            for size in group["sizes"]:
                self.parameters.append((cursor, cursor + size))
                self.group_of.append(index)
                cursor += -(-size // BLOCK) * BLOCK
        self.total = cursor

    def flat(self, packed):
        """Parameters one after the other -> the flat order with its padding of zeros."""
        result = np.zeros(packed.shape[:-1] + (self.total,), dtype=np.float64)
        cursor = 0
        for begin, end in self.parameters:
            result[..., begin:end] = packed[..., cursor:cursor + end - begin]
            cursor += end - begin
        return result

    def padding(self):
        mask = np.ones(self.total, dtype=bool)
        for begin, end in self.parameters:
            mask[begin:end] = False
        return mask

    def fragment(self, f, count):
        blocks = self.total // BLOCK
        return slice(BLOCK * (f * blocks // count), BLOCK * ((f + 1) * blocks // count))


class Worker:
    """One worker: its live parameters and its inner optimizer (SGD with momentum and weight decay)."""

    def __init__(self, initial, fragments):
        self.live = initial.copy()
        self.velocity = np.zeros_like(initial)
        self.samples = [0.0] * fragments  # given to step() since each fragment's last launch

    def inner_step(self, gradient, rate, momentum, decay, has_gradient):
        g = gradient + decay * self.live
        self.velocity = momentum * self.velocity + g
        self.live = self.live - np.where(has_gradient, rate * self.velocity, 0.0)


class Exchange:
    """One exchange in flight."""

    def __init__(self, due, D, sent, measured_from, rate_then):
        self.due = due                      # the step at which it is applied
        self.D = D                          # what the all-reduce gives: the weighted mean of what was sent
        self.sent = sent                    # s_i, per worker
        self.measured_from = measured_from  # the consensus at the launch
        self.rate_then = rate_then          # gamma of the round, per element


class Fragment:
    def __init__(self, where, initial):
        self.where = where
        self.x = initial[where].copy()          # consensus
        self.m = np.zeros_like(self.x)          # outer momentum
        self.in_flight = []


class Oracle:
    """All workers of one case. step() and finish() as the library's; history of what a test compares."""

    def __init__(self, case, data):
        self.case = case
        self.layout = Layout(case["groups"])
        self.tau = case["options"]["local_steps"]
        values = strategy_values(case["strategy"], self.tau)
        for name in values:
            values[name] = case["options"].get(name, values[name])
        self.o = values
        self.P = values["fragments"]
        initial = self.layout.flat(data.initial)
        self.a = self.layout.flat(data.curvature)
        self.b = [self.layout.flat(data.targets[w]) for w in range(case["workers"])]
        self.workers = [Worker(initial, self.P) for _ in range(case["workers"])]
        self.fragments = [Fragment(self.layout.fragment(f, self.P), initial) for f in range(self.P)]
        self.t = 0
        self.last_positive = [1.0] * len(case["groups"])
        self.rate = np.ones(self.layout.total)  # gamma in force, per element, guarded against zero
        self.has_gradient = ~self.layout.padding()
        for parameter in case.get("without_gradient", []):
            begin, end = self.layout.parameters[parameter]
            self.has_gradient[begin:end] = False

    # ---- when -------------------------------------------------------------------------------------------------------
    def launch_step(self, f):
        """L_f, the first step after which fragment f is launched; L_P = L_0 + tau."""
        if f == self.P:
            return self.launch_step(0) + self.tau
        return (f + 1) * self.tau // self.P

    def launch_due(self, f):
        return self.t >= self.launch_step(f) and (self.t - self.launch_step(f)) % self.tau == 0

    def delay(self, f):
        if self.o["delay"] is not None:
            return self.o["delay"]
        if self.o["restart"] == "paper":
            return self.tau
        return self.launch_step(f + 1) - self.launch_step(f)

    def launches_first(self):
        return self.o["restart"] == "paper"

    # ---- the rules --------------------------------------------------------------------------------------------------
    def per_element(self, values):
        """One number per group -> one per flat element."""
        result = np.ones(self.layout.total)
        for (begin, end), group in zip(self.layout.parameters, self.layout.group_of):
            result[begin:end] = values[group]
        return result

    def guarded_rate(self, rates):
        """A rate of zero is replaced by the group's last positive one."""
        self.last_positive = [r if r > 0 else last for r, last in zip(rates, self.last_positive)]
        return self.per_element(self.last_positive)

    def weight(self, worker, f):
        return worker.samples[f]

    def on_the_wire(self, values):
        return to_bfloat16(values) if self.o["wire"] == "bfloat16" else values

    def sent(self, worker, fragment, weight):
        """s = d = consensus - live, as far as w s fits on the wire; a worker without weight sends nothing."""
        d = fragment.x - worker.live[fragment.where]
        if weight == 0:
            return np.zeros_like(d)
        return self.on_the_wire(weight * d) / weight if self.o["wire"] != "plain" else d

    def add(self, total, values):
        """Every addition of the all-reduce, in the order of ranks, gives what fits on the wire."""
        return self.on_the_wire(total + self.on_the_wire(values))

    def rate_then(self, exchange, fragment):
        return exchange.rate_then if self.o["rate_units"] else 1.0

    def rate_now(self, exchange, fragment):
        return self.rate[fragment.where] if self.o["rate_units"] else 1.0

    def staleness_gap(self, exchange, fragment):
        """Lambda = 1 + ||x now - x that this progress was measured from|| / ||D||."""
        if not self.o["penalty"]:
            return 1.0
        norm = np.linalg.norm(exchange.D)
        return 1.0 + np.linalg.norm(fragment.x - exchange.measured_from) / norm if norm > 0 else 1.0

    def clip(self, m):
        phi = self.o["clip"]
        if phi == 0:
            return m
        if self.o["clip_mode"] == "value":
            return np.clip(m, -phi, phi)
        norm = np.linalg.norm(m)
        return m * (phi / norm) if norm > phi else m

    def restart(self, live, x, sent, move):
        if self.o["restart"] == "paper":
            return x.copy()
        if self.o["restart"] == "keep":
            return live + sent - move
        return (1 - self.o["mix"]) * x + self.o["mix"] * live

    # ---- launch, apply ----------------------------------------------------------------------------------------------
    def launch(self, f):
        fragment = self.fragments[f]
        weights = [self.weight(worker, f) for worker in self.workers]
        sent = [self.sent(worker, fragment, w) for worker, w in zip(self.workers, weights)]
        D = np.zeros_like(fragment.x)
        if sum(weights) > 0:
            for w, s in zip(weights, sent):
                D = self.add(D, w * s)
            D = D / sum(weights)
        if self.restarts_without_apply(f, fragment):
            for worker in self.workers:
                worker.live[fragment.where] = fragment.x
        fragment.in_flight.append(
            Exchange(self.t + self.delay(f), D, sent, fragment.x.copy(), self.rate[fragment.where].copy()))
        for worker in self.workers:
            worker.samples[f] = 0.0

    def restarts_without_apply(self, f, fragment):
        """`paper` restarts at every launch; in the first round there is nothing to apply, so x_1 = x_0."""
        return self.o["restart"] == "paper" and self.delay(f) > 0 and not fragment.in_flight

    def last_restart(self, live, x, sent, move):
        """finish() throws away no computed progress: `paper` too keeps the steps that were not sent. The progress of
        this exchange left the live parameters when they restarted at its launch."""
        if self.o["restart"] == "paper":
            return live - move
        return self.restart(live, x, sent, move)

    def apply(self, fragment, exchange, finishing=False):
        g = exchange.D / (self.staleness_gap(exchange, fragment) * self.rate_then(exchange, fragment))
        beta = self.o["momentum"]
        fragment.m = self.clip(beta * fragment.m + g)
        direction = g + beta * fragment.m if self.o["nesterov"] else fragment.m
        move = self.o["outer_rate"] * self.rate_now(exchange, fragment) * direction
        fragment.x = fragment.x - move
        for worker, sent in zip(self.workers, exchange.sent):
            live = worker.live[fragment.where]
            worker.live[fragment.where] = (self.last_restart(live, fragment.x, sent, move) if finishing else
                                           self.restart(live, fragment.x, sent, move))

    def apply_due(self, fragment, everything=False):
        """The exchanges whose step has come; `everything`: finish() does not wait for it."""
        due = [e for e in fragment.in_flight if everything or e.due <= self.t]  # oldest first
        fragment.in_flight = [e for e in fragment.in_flight if e not in due]
        for exchange in due:
            self.apply(fragment, exchange, finishing=everything)

    # ---- what the training loop calls -------------------------------------------------------------------------------
    def step(self):
        case, index = self.case, self.t
        self.t += 1
        gradients = [self.a * worker.live - self.b[w][index] for w, worker in enumerate(self.workers)]
        if case["strategy"] == "ddp":
            gradients = [sum(gradients) / len(gradients)] * len(gradients)
        rates = [group["rates"][index] for group in case["groups"]]
        rate = self.per_element(rates)
        momentum = self.per_element([group.get("momentum", 0.0) for group in case["groups"]])
        decay = self.per_element([group.get("weight_decay", 0.0) for group in case["groups"]])
        for worker, gradient in zip(self.workers, gradients):
            worker.inner_step(gradient, rate, momentum, decay, self.has_gradient)
        self.rate = self.guarded_rate(rates)
        if case["strategy"] in ("none", "ddp"):
            return
        for w, worker in enumerate(self.workers):
            worker.samples = [s + case["samples"][w][index] for s in worker.samples]
        for f, fragment in enumerate(self.fragments):
            if self.launches_first():
                if self.launch_due(f):
                    self.launch(f)
                self.apply_due(fragment)
            else:
                self.apply_due(fragment)
                if self.launch_due(f):
                    self.launch(f)
                    self.apply_due(fragment)  # blocking: at once

    def finish(self):
        if self.case["strategy"] == "none":
            return
        for fragment in self.fragments:
            self.apply_due(fragment, everything=True)
        mean = self.final_mean()
        for worker in self.workers:
            worker.live = mean.copy()
            worker.samples = [0.0] * self.P  # the progress that they stand for has been averaged
        for fragment in self.fragments:
            fragment.x = mean[fragment.where].copy()

    def final_mean(self):
        return sum(worker.live for worker in self.workers) / len(self.workers)

    def snapshot(self):
        """(live of each worker, consensus of each worker)."""
        live = np.stack([worker.live for worker in self.workers])
        if self.case["strategy"] in ("none", "ddp"):
            return live, live
        x = np.empty(self.layout.total)
        for fragment in self.fragments:
            x[fragment.where] = fragment.x
        return live, np.broadcast_to(x, live.shape)


def run(case, data, oracle=Oracle):
    """The snapshots of a whole case: after each step, and after each finish()."""
    state = oracle(case, data)
    snapshots = []
    for step in range(1, case["steps"] + 1):
        state.step()
        snapshots.append(state.snapshot())
        if step in case["finish_after"]:
            state.finish()
            snapshots.append(state.snapshot())
    return snapshots
