"""The clip of bursts (docs/algorithm.md), as rules of the oracle: it is one of these."""

import numpy as np


class Bursts:
    def usual_after(self, fragment, steps):
        """Usual progress of so many steps, which may or may not agree in direction."""
        longer = steps / fragment.usual_steps
        return fragment.usual * max(longer, np.sqrt(longer))

    def allowed(self, fragment, steps):
        """`clip` times what is usual, which the first two exchanges tell."""
        if self.o["clip"] == 0 or self.o["clip_mode"] != "usual" or fragment.exchanges < 2:
            return np.inf
        return self.o["clip"] * self.usual_after(fragment, steps)

    def burst_factor(self, fragment, exchange):
        """What is known of it: at most what is allowed. Usual is the largest of the exchanges so far, which fades with
        each."""
        if self.o["clip"] == 0 or self.o["clip_mode"] != "usual" or exchange.size == 0:
            return 1.0
        usual = self.usual_after(fragment, exchange.steps)
        allowed = self.allowed(fragment, exchange.steps)
        fragment.exchanges += 1
        factor = allowed / exchange.known_size if exchange.known_size > allowed else 1.0
        fragment.usual = max(factor * exchange.size, 0.999 * usual)
        fragment.usual_steps = exchange.steps
        return factor

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

    def left(self, fragment, w, known_size, sent):
        """What rounding leaves of a worker's progress that may be a burst."""
        is_kept = self.rounds() and self.o["restart"] == "keep"
        if not is_kept or known_size <= self.allowed(fragment, fragment.since[w].steps):
            return None
        return self.x[fragment.where] - self.workers[w].live[fragment.where] - sent

    def drop_what_a_burst_left(self, fragment, exchange, share):
        """Of a burst, only a share arrives; of what rounding left of it, only that share is sent later."""
        if share == 1 or self.o["restart"] != "keep":
            return
        if self.in_blocks():
            self.rests[self.owners(fragment), np.arange(fragment.where.start, fragment.where.stop)] *= share
        for w, left in enumerate(exchange.left):
            if left is not None:
                self.workers[w].live[fragment.where] += (1 - share) * left
                fragment.residues[w] = fragment.residues[w] * share

    # ---- how large progress is --------------------------------------------------------------------------------------
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
        unsure = np.zeros(self.layout.total, dtype=bool)
        for g in range(len(rates)):
            def counted(norm):
                fresh = max(norm - left[g], 0.0)
                of_fresh = fresh / gamma[g] * since.steps / since.unsent if gamma[g] > 0 else 0.0
                return of_fresh + (left_sizes[g] * (norm - fresh) / left[g] if left[g] > 0 else 0.0)

            whole = np.linalg.norm(d[groups == g])
            sizes[g] = counted(whole)
            if not self.is_sure(sizes[g], whole, left[g], gamma[g] * since.unsent / since.steps):
                unsure[where] |= groups == g
            if whole > 0:
                of_sent[g] = sizes[g] * np.linalg.norm(sent[groups == g]) / whole
                known_sizes[g] = counted(np.linalg.norm(d[(groups == g) & known & ~unsure[where]]))
            if leaves and whole > 0:
                still_left = np.linalg.norm((d - sent)[groups == g])
                residues[:, g] = still_left, sizes[g] * still_left / whole
        fragment.residues[w] = residues
        self.forget(fragment, w, unsure)
        all_and_known = [np.sqrt(np.square(its).sum() / max(len(sent), 1)) for its in (sizes, known_sizes)]
        return *all_and_known, of_sent

    def is_sure(self, counted, whole, left, gamma):
        """Whether norms tell how large fresh progress is, which may point against what was left."""
        return gamma == 0 or (whole + left) / gamma <= 3 * counted

    def take_over_residues(self, new, old, share):
        """The parts of several fragments' elements, as if they were alike everywhere."""
        new.residues = [np.hypot(mine, np.sqrt(share) * its) for mine, its in zip(new.residues, old.residues)]

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

    def forget(self, fragment, w, unsure):
        """Where they do not, nothing is known."""
        for p, where in self.pieces(fragment.where):
            if unsure[where].any():
                fragment.times_sent[w, p] = fragment.rested[w, p] = 0
