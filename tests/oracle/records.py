"""What the oracle keeps of a worker, a fragment, an exchange and a round."""

import numpy as np


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

    def __init__(self, due, D, sent, measured_from, rates, size, known_size, steps, beta, trained, sent_size,
                 left):
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
        self.left = left                    # what rounding left of each worker's part; None where that is usual


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
