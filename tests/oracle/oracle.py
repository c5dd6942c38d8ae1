"""The rules of docs/algorithm.md in float64, written to be read next to that page and independently of the library.
Wires of blocks are the exception: a code is a decision, so their arithmetic is in float32, in the library's order.

Nothing here is clever: every worker holds its live parameters, all of them together the consensus x and the outer
momentum m, every fragment its exchanges in flight, and each rule is one small method, so that a test can replace one
and see the comparison fail. Those about bursts and wires are in files of their own.
"""

import numpy as np

from bursts import Bursts
from layout import Layout
from records import Exchange, Fragment, Round, Since, Worker
from wires import Wires

# The strategies' own values; a case overrides any of them. Some depend on local_steps (tau).
COMMON = dict(fragments=1, delay=None, outer_rate=1.0, momentum=0.0, nesterov=False, penalty=False, clip=0.0,
              clip_mode="usual", restart="paper", mix=0.0, rate_units=False, wire="plain")


def strategy_values(strategy, tau):
    own = {
        "none": {},
        "ddp": {},
        "local-sgd": dict(delay=0),
        "slowmo": dict(delay=0, momentum=0.5, rate_units=True),
        "diloco": dict(delay=0, outer_rate=0.7, momentum=0.9, nesterov=True),
        "streaming-diloco": dict(fragments=min(4, tau), outer_rate=0.7, momentum=0.9, nesterov=True, restart="mix",
                                 mix=0.5),
        "eager-diloco": dict(outer_rate=0.7, momentum=0.9, nesterov=True),
        "overlap-local-sgd": dict(momentum=0.7, restart="mix", mix=0.4),
        "co2-paper": dict(momentum=0.2, penalty=True, clip=4.0, rate_units=True),
        "co2": dict(fragments=min(4, tau), momentum=0.3 if tau >= 16 else 0.0, penalty=True, clip=4.0, restart="keep",
                    rate_units=True),
    }
    return COMMON | own[strategy]


class Oracle(Bursts, Wires):
    """All workers of one case. step() and finish() as the library's; history of what a test compares."""

    def __init__(self, case, data):
        self.case = case
        self.layout = Layout(case["groups"])
        self.plan = case.get("plan")  # (tau, P) in force after each step, if they changed
        tau = self.plan[3][0] if self.plan else case["options"]["local_steps"]
        values = strategy_values(case["strategy"], tau)
        for name in values:
            values[name] = case["options"].get(name, values[name])
        self.o = values
        initial = self.layout.flat(data.initial)
        self.a = self.layout.flat(data.curvature)
        self.b = [self.layout.flat(data.targets[w]) for w in range(case["workers"])]
        self.workers = [Worker(initial) for _ in range(case["workers"])]
        self.x = initial.copy()            # consensus
        self.m = np.zeros_like(initial)    # outer momentum
        # What each worker, as an owner of blocks, has yet to pass on of every element: mean progress
        self.rests = np.zeros((case["workers"], self.layout.total), dtype=np.float32)
        self.t = 0
        self.old_fragments = []  # of another cut, with something in flight
        # With a plan that is chosen while training, the first four steps only measure.
        self.round = Round(0, 4, 0) if self.plan else Round(0, tau, values["fragments"])
        self.fragments = self.cut(self.round.P or 1)
        self.last_positive = np.ones(len(case["groups"]))
        self.has_gradient = ~self.layout.padding()
        for parameter in case.get("without_gradient", []):
            begin, end = self.layout.parameters[parameter]
            self.has_gradient[begin:end] = False

    def cut(self, P):
        return [Fragment(self.layout.fragment(f, P), len(self.workers), len(self.case["groups"]),
                         len(self.layout.parameters)) for f in range(P)]

    # ---- when -------------------------------------------------------------------------------------------------------
    def launch_step(self, f):
        return self.round.launch_step(f)

    def next_round(self):
        if self.plan and self.round.end() == self.t:
            return Round(self.t, *self.plan[self.t - 1])
        return Round(self.round.end(), self.round.tau, self.round.P)

    def due(self, f):
        """The step at which what is launched now is applied."""
        if self.o["delay"] is not None:
            return self.t + self.o["delay"]
        if self.o["restart"] == "paper" and not self.plan:
            return self.t + self.round.tau
        return self.launch_step(f + 1) if f + 1 < self.round.P else self.next_round().launch_step(0)

    def launches_first(self):
        return self.o["restart"] == "paper"

    def begin(self, following):
        """Another round, whose fragments may be others: they take over what belongs to their elements."""
        if following.P != len(self.fragments):
            fragments = self.cut(following.P)
            for old in self.fragments:
                for new in fragments:
                    common = min(old.where.stop, new.where.stop) - max(old.where.start, new.where.start)
                    if common <= 0:
                        continue
                    share = common / (new.where.stop - new.where.start)
                    for mine, its in zip(new.since, old.since):
                        mine.add(share * its.samples, share * its.steps, share * its.unsent, share * its.rates)
                    self.take_over_usual(new, old)
                    self.take_over_residues(new, old, common / (old.where.stop - old.where.start))
            self.old_fragments, self.fragments = self.fragments, fragments
        self.round = following

    # ---- the rules --------------------------------------------------------------------------------------------------
    def per_element(self, values):
        """One number per group -> one per flat element."""
        result = np.ones(self.layout.total)
        for (begin, end), group in zip(self.layout.parameters, self.layout.group_of):
            result[begin:end] = values[group]
        return result

    def beta(self):
        """Outer momentum of the round: `co2` has none of its own when rounds are short."""
        if self.plan and self.case["strategy"] == "co2" and "momentum" not in self.case["options"]:
            return 0.3 if self.round.tau >= 16 else 0.0
        return self.o["momentum"]

    def weight(self, since):
        return since.samples

    def takes_part(self, d):
        """A worker with progress that is not finite is left out of the exchange, as if it had no weight,"""
        return np.isfinite(d).all()

    def is_averaged(self, live):
        """and with parameters that are not finite, out of finish()."""
        return np.isfinite(live).all()

    def rates_of(self, since):
        """A worker's mean rate of the steps since the launch, per group."""
        return since.rates / since.unsent

    def agreed_rates(self, weights, rates):
        total = sum(weights)
        return sum(w * r for w, r in zip(weights, rates)) / total if total > 0 else np.zeros(len(self.case["groups"]))

    def guarded_rates(self, exchange):
        """A rate of zero is replaced by the group's last positive one."""
        self.last_positive = np.where(exchange.rates > 0, exchange.rates, self.last_positive)
        return self.last_positive

    # ---- the apply --------------------------------------------------------------------------------------------------
    def rate_in(self, gamma):
        """Progress is divided by this,"""
        return gamma

    def rate_out(self, gamma):
        """and the move multiplied by this: the same, so that fresh progress arrives as it was made."""
        return gamma

    def staleness_gap(self, exchange, fragment):
        """Lambda = 1 + ||x now - x that this progress was measured from|| / ||D||."""
        if not self.o["penalty"]:
            return 1.0
        norm = np.linalg.norm(exchange.D)
        return 1.0 + np.linalg.norm(self.x[fragment.where] - exchange.measured_from) / norm if norm > 0 else 1.0

    def clip(self, m):
        phi = self.o["clip"]
        if phi == 0 or self.o["clip_mode"] == "usual":
            return m
        if self.o["clip_mode"] == "value":
            return np.clip(m, -phi, phi)
        norm = np.linalg.norm(m)
        return m * (phi / norm) if norm > phi else m

    def trained(self, fragment, weights):
        """Which elements feel momentum: not those of a parameter that nobody who sends something has trained since it
        last did so. The first time that there is momentum, and in a new cut, nobody knows, and everything counts."""
        where = fragment.where
        looked, fragment.looked = fragment.looked, self.beta() > 0
        result = np.zeros(self.layout.total, dtype=bool)
        for worker, weight in zip(self.workers, weights):
            for begin, end in self.layout.parameters:
                some = slice(max(begin, where.start), min(end, where.stop))
                touched = not looked or worker.touched[some].any()
                if weight > 0 and touched and not self.is_rounding(worker, some):
                    result[some] = True
            if weight > 0 or self.o["restart"] != "keep":
                worker.touched[where] = False
        return result[where]

    def is_rounding(self, worker, where):
        """Whether a worker's progress of a parameter is nowhere more than what rounding makes of it."""
        rate = self.per_element(self.last_positive)
        for row in range(where.start, where.stop, 256):
            some = slice(row, min(row + 256, where.stop))
            size = np.abs(self.x[some]) + np.abs(rate[some] * self.m[some])
            if np.abs(self.x[some] - worker.live[some]).max() > 2.0 ** -20 * size.max():
                return False
        return True

    def memorable(self, exchange, where, scale, D, gamma):
        """How much of what has arrived momentum remembers: not more than what the workers have sent, in units of its own
        time, but for what owners add."""
        some_is_old = self.in_blocks() or self.rounds() and self.o["restart"] == "keep"
        if exchange.beta == 0 or not some_is_old:
            return 1.0
        groups = self.per_element(np.arange(len(exchange.sent_size)))[where]
        result = np.ones(len(D))
        for g, sent_size in enumerate(exchange.sent_size):
            size, most = np.linalg.norm((D / gamma)[groups == g]), 1.5 * sent_size * scale
            if size > most:
                result[groups == g] = most / size
        return result

    def restart(self, live, x, sent, move):
        if self.o["restart"] == "paper":
            return x.copy()
        if self.o["restart"] == "keep":
            return live + sent - move
        return (1 - self.o["mix"]) * x + self.o["mix"] * live

    # ---- launch, apply ----------------------------------------------------------------------------------------------
    def launch(self, f):
        fragment = self.fragments[f]
        weights = [self.weight(since) if self.takes_part(self.x[fragment.where] - worker.live[fragment.where]) else 0.0
                   for worker, since in zip(self.workers, fragment.since)]
        rates = [self.rates_of(since) for since in fragment.since]
        sent = [self.sent(worker, fragment, w) for worker, w in zip(self.workers, weights)]
        sizes = [self.size(fragment, w, r, s) if weights[w] > 0 else (0.0, 0.0, 0.0 * r)
                 for w, (r, s) in enumerate(zip(rates, sent))]
        trained = self.trained(fragment, weights)
        left = [self.left(fragment, w, its[1], s) for w, (its, s) in enumerate(zip(sizes, sent))]
        D = np.zeros_like(self.x[fragment.where])
        size, known_size, sent_size = 0.0, 0.0, np.zeros(len(self.case["groups"]))
        if sum(weights) > 0:
            for w, s in zip(weights, sent):
                D = self.add(D, w * s)
            if self.in_blocks():
                D = self.passed_on(fragment, D, sum(weights)).astype(np.float64)
            D = D / sum(weights)
            size = sum(w * its[0] for w, its in zip(weights, sizes)) / sum(weights)
            known_size = sum(w * its[1] for w, its in zip(weights, sizes)) / sum(weights)
            sent_size = sum(w * its[2] for w, its in zip(weights, sizes)) / sum(weights)
        sent = [self.taken_out(worker, fragment, s) for worker, s in zip(self.workers, sent)]
        if self.restarts_without_apply(f, fragment):
            for worker in self.workers:
                worker.live[fragment.where] = self.x[fragment.where]
        fragment.in_flight.append(Exchange(self.due(f), D, sent, self.x[fragment.where].copy(),
                                           self.agreed_rates(weights, rates), size, known_size,
                                           fragment.since[0].steps, self.beta(), trained, sent_size, left))
        for w, since in enumerate(fragment.since):
            fragment.since[w] = Since(len(self.case["groups"]))
            if weights[w] == 0 and self.o["restart"] == "keep":
                fragment.since[w].add(0.0, 0.0, since.unsent, since.rates)

    def restarts_without_apply(self, f, fragment):
        """`paper` restarts at every launch; in the first round there is nothing to apply, so x_1 = x_0."""
        return self.o["restart"] == "paper" and self.o["delay"] != 0 and not fragment.in_flight

    def last_restart(self, live, x, sent, move):
        """finish() throws away no computed progress: `paper` too keeps the steps that were not sent. The progress of
        this exchange left the live parameters when they restarted at its launch."""
        if self.o["restart"] == "paper":
            return live - move
        return self.restart(live, x, sent, move)

    def apply(self, fragment, exchange, finishing=False):
        where = fragment.where
        gamma = self.per_element(self.guarded_rates(exchange))[where] if self.o["rate_units"] else np.ones(len(exchange.D))
        unless_burst = self.burst_factor(fragment, exchange)
        scale = unless_burst / self.staleness_gap(exchange, fragment)
        g = scale * exchange.D / self.rate_in(gamma)
        beta = exchange.beta
        self.m[where] *= exchange.trained
        self.m[where] = self.clip(beta * self.m[where] + g)
        direction = g + beta * self.m[where] if self.o["nesterov"] else self.m[where]
        move = self.o["outer_rate"] * self.rate_out(gamma) * direction
        self.m[where] -= (1 - self.memorable(exchange, where, unless_burst, scale * exchange.D, self.rate_in(gamma))) * g
        if exchange.beta == 0 and not self.o["nesterov"]:
            self.m[where] = 0.0  # an exchange without momentum forgets it
        self.x[where] = self.x[where] - move
        for worker, sent in zip(self.workers, exchange.sent):
            live = worker.live[where]
            worker.live[where] = (self.last_restart(live, self.x[where], sent, move) if finishing else
                                  self.restart(live, self.x[where], sent, move))
        self.drop_what_a_burst_left(fragment, exchange, unless_burst)

    def apply_due(self, everything=False):
        """The exchanges whose step has come; `everything`: finish() does not wait for it."""
        for fragment in self.old_fragments + self.fragments:
            due = [e for e in fragment.in_flight if everything or e.due <= self.t]  # oldest first
            fragment.in_flight = [e for e in fragment.in_flight if e not in due]
            for exchange in due:
                self.apply(fragment, exchange, finishing=everything)

    # ---- eager workers ----------------------------------------------------------------------------------------------
    def runs_ahead(self):
        return self.case["strategy"] == "eager-diloco" and self.launch_step(0) == self.t

    def come_back(self):
        """Progress is measured from where a worker started, ahead of the consensus. Returns what each has to tell."""
        weights = [self.weight(since) for since in self.fragments[0].since]
        for worker in self.workers:
            worker.live = worker.live - worker.ahead
        return [self.x - worker.live if weight > 0 and self.takes_part(self.x - worker.live) else None
                for worker, weight in zip(self.workers, weights)]

    def run_ahead(self, progress):
        """Each has an outer optimizer whose gradient is what arrives, with its own part replaced by the newest. This is
        what that adds to the one that all have in common."""
        beta, G = self.o["momentum"], len(self.workers)
        for worker, d in zip(self.workers, progress):
            for begin, end in self.layout.parameters:  # what is frozen forgets
                if d is not None and not d[begin:end].any():
                    worker.ahead[begin:end] = worker.own_momentum[begin:end] = worker.on_its_way[begin:end] = 0.0
            d = np.zeros_like(worker.live) if d is None else d  # it has told nobody
            g = (d - worker.on_its_way) / G
            worker.own_momentum = beta * worker.own_momentum + g
            direction = g + beta * worker.own_momentum if self.o["nesterov"] else worker.own_momentum
            worker.ahead = worker.ahead - self.o["outer_rate"] * direction
            worker.on_its_way = d
            worker.live = worker.live + worker.ahead

    def launch_due(self):
        for f in range(self.round.P):
            if self.launch_step(f) == self.t:
                self.launch(f)

    # ---- what the training loop calls -------------------------------------------------------------------------------
    def rates(self, worker, index):
        """The inner rates of a worker's step, per group."""
        factor = self.case.get("rate_factors", [1.0] * len(self.workers))[worker]
        return np.array([factor * group["rates"][index] for group in self.case["groups"]])

    def step(self):
        case, index = self.case, self.t
        self.t += 1
        gradients = [self.a * worker.live - self.b[w][index] for w, worker in enumerate(self.workers)]
        if case["strategy"] == "ddp":
            gradients = [sum(gradients) / len(gradients)] * len(gradients)
        scale = case["gradient_scales"][index] if "gradient_scales" in case else 1.0
        momentum = self.per_element([group.get("momentum", 0.0) for group in case["groups"]])
        decay = self.per_element([group.get("weight_decay", 0.0) for group in case["groups"]])
        for w, (worker, gradient) in enumerate(zip(self.workers, gradients)):
            rate = self.per_element(self.rates(w, index))
            worker.inner_step(scale * gradient, rate, momentum, decay, self.has_gradient)
        if case["strategy"] in ("none", "ddp"):
            return
        for fragment in self.fragments:
            for w, since in enumerate(fragment.since):
                since.add(case["samples"][w][index], 1.0, 1.0, self.rates(w, index))
        if not self.launches_first():
            self.apply_due()
        progress = self.come_back() if self.runs_ahead() else None
        self.launch_due()
        self.apply_due()  # blocking ones at once
        if progress:
            self.run_ahead(progress)
        if self.t == self.round.end():
            self.begin(self.next_round())

    def finish(self):
        if self.case["strategy"] == "none":
            return
        for worker in self.workers:
            worker.live = worker.live - worker.ahead
            worker.catch_up()
        self.apply_due(everything=True)
        mean = self.final_mean()
        for worker in self.workers:
            worker.live = mean.copy()
            worker.touched[:] = False
        for fragment in self.fragments:  # the progress that they stand for has been averaged
            fragment.since = [Since(len(self.case["groups"])) for _ in self.workers]
            fragment.residues = [np.zeros_like(its) for its in fragment.residues]
        self.x = mean.copy()
        self.forget_rests()

    def final_mean(self):
        """Of the workers whose parameters are finite, fragment by fragment; and what owners have yet to pass on."""
        mean = np.zeros(self.layout.total)
        for fragment in self.fragments:
            live = [worker.live[fragment.where] for worker in self.workers]
            live = [values for values in live if self.is_averaged(values)] or live
            mean[fragment.where] = sum(live) / len(live)
        return mean - self.final_move()

    def final_move(self):
        return self.o["outer_rate"] * self.rests.sum(axis=0, dtype=np.float64)

    def forget_rests(self):
        self.rests[:] = 0

    def snapshot(self):
        """(live of each worker, consensus of each worker)."""
        live = np.stack([worker.live for worker in self.workers])
        if self.case["strategy"] in ("none", "ddp"):
            return live, live
        return live, np.broadcast_to(self.x.copy(), live.shape)


def run(case, data, oracle=Oracle):
    """The snapshots of a whole case: after each step, and after each finish()."""
    state = oracle(case, data)
    snapshots = []
    with np.errstate(invalid="ignore"):  # some cases have parameters that are not finite
        for step in range(1, case["steps"] + 1):
            state.step()
            snapshots.append(state.snapshot())
            if step in case["finish_after"]:
                state.finish()
                snapshots.append(state.snapshot())
    return snapshots
