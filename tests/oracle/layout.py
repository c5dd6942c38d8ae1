"""Where things are in the flat order of the parameters, for the oracle."""

import numpy as np

from codec import CODED_BLOCK

BLOCK = 16  # each parameter, and each fragment, starts at a multiple of this many elements


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
