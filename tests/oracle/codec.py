"""What a reader of the wire makes of numbers that were rounded for it (docs/wire.md), for the oracle."""

import numpy as np

CODED_BLOCK = 64                                    # elements that share a scale on a wire of blocks,
LARGEST_CODE = {"int8": 127, "int4": 7, "int2": 1}  # and the largest whole number that stands for one of them


def to_bfloat16(values):
    """The nearest number with 8 significant bits, ties to even; a float64 becomes a float32 first."""
    return rounded_to_8_bits(values.astype(np.float32).astype(np.float64))


def rounded_to_8_bits(values, rounding=np.rint):
    fraction, exponent = np.frexp(values)  # 0.5 <= |fraction| < 1
    return np.ldexp(rounding(np.ldexp(fraction, 8)), exponent - 8)


def block_scale(block, largest):
    """In float32: the largest number over the largest code, rounded up to 8 bits."""
    quotient = np.abs(block).max(initial=np.float32(0)) / np.float32(largest)
    return rounded_to_8_bits(quotient, np.ceil) if quotient >= np.float32(2.0 ** -100) else np.float32(0)


def coded(block, largest):
    """What a reader makes of one block, in float32."""
    scale = block_scale(block, largest)
    return np.rint(block * (np.float32(1) / scale)) * scale if scale > 0 else np.zeros_like(block)
