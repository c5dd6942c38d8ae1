"""What goes on the wire (docs/wire.md), as rules of the oracle: it is one of these."""

import numpy as np

from codec import LARGEST_CODE, coded, to_bfloat16


class Wires:
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
