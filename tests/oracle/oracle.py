"""The rules of docs/algorithm.md in float64, written to be read next to that page and independently of the library.
Wires of blocks are the exception: a code is a decision, so their arithmetic is in float32, in the library's order.

Nothing here is clever: every worker holds its live parameters, all of them together the consensus x and the outer
momentum m, every fragment its exchanges in flight, and each rule is one small method, so that a test can replace one
and see the comparison fail.
"""

import numpy as np

from codec import CODED_BLOCK, LARGEST_CODE, coded, to_bfloat16

BLOCK = 16  # each parameter, and each fragment, starts at a multiple of this many elements

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
        "co2": dict(fragments=min(4, tau), momentum=0.3 if tau >= 6 else 0.0, penalty=True, clip=4.0, restart="keep",
                    rate_units=True),
    }
    return COMMON | own[strategy]


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

    def stretches(self, where):
        """The stretches of `where` that belong to one parameter group, with the padding behind its parameters."""
        begins = [self.parameters[p][0] for p, group in enumerate(self.group_of)
                  if p == 0 or group != self.group_of[p - 1]]
        for begin, end in zip(begins, begins[1:] + [self.total]):
            begin, end = max(begin, where.start), min(end, where.stop)
            if begin < end:
                yield slice(begin, end)

    def coded_blocks(self, where):
        """The blocks that are coded together, counted from the beginning of `where`: every stretch begins a new one."""
        for stretch in self.stretches(where):
            for begin in range(stretch.start, stretch.stop, CODED_BLOCK):
                yield slice(begin - where.start, min(begin + CODED_BLOCK, stretch.stop) - where.start)

    def fragment(self, f, count):
        blocks = self.total // BLOCK
        return slice(BLOCK * (f * blocks // count), BLOCK * ((f + 1) * blocks // count))


class Worker:
    """One worker: its live parameters and its inner optimizer (SGD with momentum and weight decay)."""

    def __init__(self, initial):
        self.live = initial.copy()
        self.velocity = np.zeros_like(initial)
        self.touched = np.zeros(len(initial), dtype=bool)  # by an inner step since it last sent something of it
        self.catch_up()

    def catch_up(self):
        """An eager worker that is not ahead of the consensus, and has no momentum of its own."""
        self.ahead, self.own_momentum, self.on_its_way = (np.zeros_like(self.live) for _ in range(3))

    def inner_step(self, gradient, rate, momentum, decay, has_gradient):
        g = gradient + decay * self.live
        self.velocity = np.where(momentum > 0, momentum * self.velocity, 0.0) + g  # without it, a NaN is forgotten
        before = self.live
        self.live = self.live - np.where(has_gradient, rate * self.velocity, 0.0)
        self.touched |= self.live != before


class Since:
    """What a worker has done on a fragment since its last launch."""

    def __init__(self, groups):
        self.samples, self.steps, self.unsent, self.rates = 0.0, 0.0, 0.0, np.zeros(groups)

    def add(self, samples, steps, unsent, rates):
        self.samples, self.steps = self.samples + samples, self.steps + steps
        self.unsent, self.rates = self.unsent + unsent, self.rates + rates  # also of rounds in which nothing was sent


class Exchange:
    """One exchange in flight."""

    def __init__(self, due, D, sent, measured_from, rates, size, known_size, steps, beta, trained, sent_size):
        self.due = due                      # the step at which it is applied
        self.D = D                          # what the all-reduce gives: the weighted mean of what was sent
        self.sent = sent                    # s_i, per worker
        self.measured_from = measured_from  # the consensus at the launch
        self.rates = rates                  # gamma per group: the workers' weighted mean; 0 if nobody sent anything
        self.sent_size = sent_size
        self.size = size                    # the same mean of how large each worker's progress is, in units of gamma
        self.known_size = known_size        # and of what there is of it in parameters that it has sent twice before
        self.steps = steps                  # that it was made in
        self.beta = beta                    # outer momentum of its round
        self.trained = trained              # elements of parameters that somebody has trained


class Fragment:
    def __init__(self, where, workers, groups, parameters):
        self.where = where
        self.in_flight = []
        self.since = [Since(groups) for _ in range(workers)]
        self.usual, self.usual_steps = 0.0, 1.0  # the size of progress that is usual, and in how many steps
        self.exchanges = 0                       # that it is known from
        self.looked = False                      # at who trains what, at the last launch
        # Of each worker, what rounding has left of its progress in each group: its norm, and what it counts as.
        self.residues = [np.zeros((2, groups)) for _ in range(workers)]
        # Of each worker and parameter: how often it has sent something of it, and how often nothing since then.
        self.times_sent, self.rested = np.zeros((2, workers, parameters), dtype=int)


class Round:
    def __init__(self, begin, tau, P):
        self.begin, self.tau, self.P = begin, tau, P

    def end(self):
        return self.begin + self.tau

    def launch_step(self, f):
        return self.begin + (f + 1) * self.tau // self.P


class Oracle:
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
            return 0.3 if self.round.tau >= 6 else 0.0
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

    def usual_after(self, fragment, steps):
        """Usual progress of so many steps, which may or may not agree in direction."""
        longer = steps / fragment.usual_steps
        return fragment.usual * max(longer, np.sqrt(longer))

    def burst_factor(self, fragment, exchange):
        """What is known of it: at most `clip` times what is usual, the largest of the exchanges so far, which fades with
        each."""
        if self.o["clip"] == 0 or self.o["clip_mode"] != "usual" or exchange.size == 0:
            return 1.0
        usual = self.usual_after(fragment, exchange.steps)
        allowed = self.o["clip"] * usual if fragment.exchanges >= 2 else np.inf  # the first two tell what is usual
        fragment.exchanges += 1
        factor = allowed / exchange.known_size if exchange.known_size > allowed else 1.0
        fragment.usual = max(factor * exchange.size, 0.999 * usual)
        fragment.usual_steps = exchange.steps
        return factor

    def pieces(self, where):
        """The parameters that have elements there: (index, elements)."""
        for p, (begin, end) in enumerate(self.layout.parameters):
            begin, end = max(begin, where.start), min(end, where.stop)
            if begin < end:
                yield p, slice(begin, end)

    def known(self, fragment, w):
        """Which elements of a worker's progress can be judged: those of parameters of which it has sent something twice
        before, but for those that have rested for 256 exchanges."""
        times, rested = fragment.times_sent[w], fragment.rested[w]
        result = np.zeros(self.layout.total, dtype=bool)
        for p, where in self.pieces(fragment.where):
            result[where] = self.is_known(times[p])
            if (self.x[where] != self.workers[w].live[where]).any():
                times[p], rested[p] = times[p] + 1, 0
            else:
                rested[p] += 1
                if rested[p] == 256:
                    times[p] = rested[p] = 0
        return result[fragment.where]

    def is_known(self, times_sent):
        return times_sent >= 2

    def take_over_usual(self, new, old):
        if new.exchanges == 0:
            new.usual, new.usual_steps = old.usual, old.usual_steps
        elif old.exchanges > 0:
            new.usual = max(new.usual, self.usual_after(old, new.usual_steps))
        new.exchanges = max(new.exchanges, old.exchanges)
        # A parameter of the new one may be pieces of several old ones, and is as well known as the best of them.
        for p in {p for p, _ in self.pieces(new.where)} & {p for p, _ in self.pieces(old.where)}:
            for w in range(len(self.workers)):
                mine, its = ((min(f.times_sent[w, p], 2), -f.rested[w, p]) for f in (new, old))
                if its > mine:
                    new.times_sent[w, p], new.rested[w, p] = old.times_sent[w, p], old.rested[w, p]

    def on_the_wire(self, values):
        return to_bfloat16(values) if self.o["wire"] == "bfloat16" else values

    def sent(self, worker, fragment, weight):
        """s = d = consensus - live, as far as w s fits on the wire; a worker without weight sends nothing."""
        d = self.x[fragment.where] - worker.live[fragment.where]
        if weight == 0:
            return np.zeros_like(d)
        if self.in_blocks():
            d = self.x[fragment.where].astype(np.float32) - worker.live[fragment.where].astype(np.float32)
            return self.coded(np.float32(weight) * d, fragment).astype(np.float64) / weight
        return self.on_the_wire(weight * d) / weight if self.o["wire"] != "plain" else d

    def add(self, total, values):
        """Every addition of the all-reduce, in the order of ranks, gives what fits on the wire; an owner of blocks adds
        in float32."""
        if self.in_blocks():
            return total.astype(np.float32) + values.astype(np.float32)
        return self.on_the_wire(total + self.on_the_wire(values))

    def taken_out(self, worker, fragment, sent):
        """What the move replaces at the apply, of what a worker has: what its peers saw, so that the rest stays."""
        return sent

    # ---- wires of blocks --------------------------------------------------------------------------------------------
    def in_blocks(self):
        """One worker alone tells nobody anything: there is nothing to round."""
        return self.o["wire"] in LARGEST_CODE and len(self.workers) > 1

    def rounds(self):
        """Whether a worker's progress may not be all that it sends."""
        return self.in_blocks() or self.o["wire"] == "bfloat16"

    def coded(self, values, fragment):
        """Block by block, what a reader of the wire makes of a fragment's values."""
        result = np.zeros_like(values)
        for block in self.layout.coded_blocks(fragment.where):
            result[block] = coded(values[block], LARGEST_CODE[self.o["wire"]])
        return result

    def owner(self, block, blocks):
        """Workers own consecutive blocks of a fragment, all of them the same number but for the last."""
        return block // -(-blocks // len(self.workers))

    def owners(self, fragment):
        """For each element of a fragment."""
        blocks = list(self.layout.coded_blocks(fragment.where))
        result = np.zeros(fragment.where.stop - fragment.where.start, dtype=int)
        for index, block in enumerate(blocks):
            result[block] = self.owner(index, len(blocks))
        return result

    def passed_on(self, fragment, total, weight):
        """What the owners make of the workers' sum: they add what they could not pass on earlier, code it once more,
        and keep what that leaves."""
        mine = self.owners(fragment), np.arange(fragment.where.start, fragment.where.stop)
        total = total + self.overdue(weight, self.rests[mine])
        result = self.coded(total, fragment)
        self.rests[mine] = self.left_over(weight, total, result)
        return result

    def overdue(self, weight, rest):
        return np.float32(weight) * rest

    def left_over(self, weight, total, result):
        return (total - result) * np.float32(1 / weight)

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

    def size(self, fragment, w, rates, sent):
        """How large a worker's progress is, what is known of it, and what is sent of it, root mean square in units of the
        rate and per round. What rounding left behind at other rates, or of a pause, keeps the units of its own time; what
        the norms do not show to be fresh is counted as that. What was made at no rate does not count."""
        since, where = fragment.since[w], fragment.where
        leaves = self.rounds() and self.o["restart"] == "keep"
        d = self.x[where] - self.workers[w].live[where] if leaves else sent
        known = self.known(fragment, w)
        left, left_sizes = fragment.residues[w]
        gamma = rates if self.o["rate_units"] else np.ones_like(rates)
        groups = self.per_element(np.arange(len(rates)))[where]
        sizes, of_sent, residues = np.zeros_like(rates), np.zeros_like(rates), np.zeros((2, len(rates)))
        known_sizes = np.zeros_like(rates)
        for g in range(len(rates)):
            whole = np.linalg.norm(d[groups == g])
            fresh = max(whole - left[g], 0.0)
            if gamma[g] > 0:
                sizes[g] += fresh / gamma[g] * since.steps / since.unsent
            if left[g] > 0:
                sizes[g] += left_sizes[g] * (whole - fresh) / left[g]
            if whole > 0:
                of_sent[g] = sizes[g] * np.linalg.norm(sent[groups == g]) / whole
                known_sizes[g] = sizes[g] * np.linalg.norm(d[(groups == g) & known]) / whole
            if leaves and whole > 0:
                still_left = np.linalg.norm((d - sent)[groups == g])
                residues[:, g] = still_left, sizes[g] * still_left / whole
        fragment.residues[w] = residues
        all_and_known = [np.sqrt(np.square(its).sum() / max(len(sent), 1)) for its in (sizes, known_sizes)]
        return *all_and_known, of_sent

    def take_over_residues(self, new, old, share):
        """The parts of several fragments' elements, as if they were alike everywhere."""
        new.residues = [np.hypot(mine, np.sqrt(share) * its) for mine, its in zip(new.residues, old.residues)]

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
                                           fragment.since[0].steps, self.beta(), trained, sent_size))
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
