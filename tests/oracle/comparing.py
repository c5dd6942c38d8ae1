"""How close is close: 8 units in the last place.

The library computes in float32, the oracle in float64 from the same float32 inputs. They can't be equal bit for bit:
the library rounds after every operation (an inner step rounds about four times, an exchange about six: progress, times
its weight, the sum over workers one by one, its scale factor, momentum, move), the sum over workers has the backend's
own order, and the fused pass multiplies by one combined factor 1/(total weight x gap x rate) where the rule divides
three times. Each is off by at most half a unit in the last place of what it touches; they add up like a random walk,
and training on a quadratic forgets them again, so the bound does not grow with the number of steps. `none`, where the
library computes nothing at all, is 4 units away from the oracle by the inner optimizer's rounding alone; the largest
that we have seen is 6.

The unit belongs to the largest magnitude that the tensor (on any worker) has had so far, because rounding that was
done while a number was large stays in it when it gets small. A wrong rule is off by thousands of units and more:
test_mutations.py shows it for each rule. A case whose rule multiplies rounding by a known factor says so ("rounding").

With a lossy wire a number that lies within these units of a tie may be rounded the other way, and is then a whole unit
of the wire away: for bfloat16 up to 2^16 of ours, if progress is as large as the parameter. So LOSSY_SHARE of the
elements may be that far off (the largest that we have seen are 0.004 and 4700 units), and the others must be as close
as without. A wrong way to round is off nearly everywhere.

With a wire of blocks such a decision is worth far more: a whole quantum, for int2 as much as all progress. What is
more, a scale is common to 64 elements, a norm to a whole fragment, and what one decision leaves behind goes into the
next: two runs that differ by a unit once may soon be different runs. So there the oracle does not run by itself: in
each step it starts from what the library held after the last one (`beside`), and knows to the bit what the library had
at every launch. From there everything that decides about codes is float32 arithmetic in a given order (docs/wire.md,
Oracle.passed_on), so that the oracle takes the same decisions, on every machine. Each step is compared, so nothing
escapes: what the oracle is not told, outer momentum, what is in flight, and the owners' rests, it goes on with by
itself.

Only in a blocking exchange (delay 0) nobody sees the parameters that it starts from: they are a unit of the inner step
off, a hundred-thousandth of a quantum of int8. So CODED_SHARE of the elements, two of 2000, may be a quantum off, which
is less than the smallest piece of a block that can be wrong by mistake: 16 elements. A wrong rule is off in 4 % of all
elements and more.
"""

import numpy as np

import codec
import oracle
from layout import Layout

UNITS = 8.0
LOSSY_SHARE = 0.02
LOSSY_UNITS = 2.0 ** 16
CODED_SHARE = 0.001
CODED_UNITS = 2.0 ** 25


def distances(case, result, expected, data):
    """For each snapshot: the distance of every element on every worker, in units in the last place."""
    layout = Layout(case["groups"])
    initial = np.abs(layout.flat(data.initial))
    largest = np.array([initial[begin:end].max(initial=0.0) for begin, end in layout.parameters])
    for index, (live, consensus) in enumerate(expected):
        of_snapshot = []
        for p, (begin, end) in enumerate(layout.parameters):
            if begin == end:
                continue
            want = np.stack([live[:, begin:end], consensus[:, begin:end]])
            have = np.stack([result.live[index][:, begin:end], result.consensus[index][:, begin:end]])
            finite = np.isfinite(want)
            largest[p] = max(largest[p], np.abs(want[finite]).max(initial=0.0))
            with np.errstate(invalid="ignore"):
                distance = np.abs(have - want) / np.spacing(np.float32(largest[p]))
            distance = np.where(np.isfinite(distance), distance, np.inf)
            of_snapshot.append(np.where(finite | np.isfinite(have), distance, 0.0).ravel())
        yield np.concatenate(of_snapshot)


def beside(rules, result):
    """The rules, step by step from what the library held: a snapshot is what must come of its one before."""
    class Beside(rules):
        def __init__(self, case, data):
            super().__init__(case, data)
            self.seen = 0
            self.blocking = self.o["delay"] == 0

        def follow(self):
            self.expected = super().snapshot()
            for worker, live in zip(self.workers, result.live[self.seen]):
                worker.live = live.astype(np.float64)
            self.x = result.consensus[self.seen][0].astype(np.float64)

        def launch_due(self):
            if not self.blocking:  # this is how the library's step will end
                self.follow()
            super().launch_due()

        def step(self):
            super().step()
            if self.blocking:
                self.follow()
            self.seen += 1

        def finish(self):
            super().finish()
            self.follow()
            self.seen += 1

        def snapshot(self):
            return self.expected
    return Beside


def units(case, result, expected, data):
    """The largest difference of each snapshot, in units in the last place."""
    return np.array([of_snapshot.max() for of_snapshot in distances(case, result, expected, data)])


def difference(case, result, data, rules=oracle.Oracle):
    """None if the library did what `rules` say, otherwise a sentence with the first place where it did not."""
    if "local_steps" not in case["options"]:  # they were chosen while training, from what was measured
        case = case | dict(plan=result.plan)
    wire = case["options"].get("wire", "plain")
    lossy = wire != "plain"
    close = UNITS * case.get("rounding", 1.0)
    limit, allowed = (LOSSY_UNITS, LOSSY_SHARE) if lossy else (close, 0.0)
    if wire in codec.LARGEST_CODE:
        rules, limit, allowed = beside(rules, result), CODED_UNITS, CODED_SHARE
    seen = list(distances(case, result, oracle.run(case, data, rules), data))
    for at, of_snapshot in enumerate(seen):
        if (worst := of_snapshot.max()) > limit:
            return (f"{case['name']}: snapshot {at + 1} of {len(seen)} is {worst:.3g} units in the last place from the "
                    f"oracle, {limit:g} allowed; the largest of all is {max(x.max() for x in seen):.3g}")
        if lossy and (share := np.mean(of_snapshot > close)) > allowed:
            return (f"{case['name']}: in snapshot {at + 1} of {len(seen)} a share of {share:.3g} is more than {close:g} "
                    f"units in the last place from the oracle, {allowed:g} allowed")
    return None


def check_padding(case, result):
    padding = Layout(case["groups"]).padding()
    assert not result.live[..., padding].any() and not result.consensus[..., padding].any()


def after_finish(case):
    """The snapshots that were taken after a finish()."""
    return [step + index for index, step in enumerate(sorted(case["finish_after"]))]


def same_bits(values):
    return (values.view(np.uint32) == values[:1].view(np.uint32)).all()


def check_workers_agree(case, result):
    """Bit for bit: the consensus after every step, and the live parameters after finish()."""
    if case["strategy"] == "none":
        return
    for index, consensus in enumerate(result.consensus):
        assert same_bits(consensus), f"{case['name']}: the workers' consensus differs at snapshot {index + 1}"
    for index in after_finish(case):
        assert same_bits(result.live[index]), f"{case['name']}: workers differ after finish()"
