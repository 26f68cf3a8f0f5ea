"""Updates in fewer bytes: 8-bit numbers to a bounded error, or the largest numbers alone.

Both are forms of the buffer of a payload (``codec``) that is read as float32, so that what a node sends is checked and
averaged like any other array.
"""

import numpy as np

from v6_federated.base.arrays import Array

BLOCK = 256  # numbers that share a scale
LEVELS = 127  # int8 from -LEVELS to LEVELS
FORMS = ("int8", "topk")
SCALE, CODE, INDEX, VALUE = np.dtype("<f4"), np.dtype("i1"), np.dtype("<u4"), np.dtype("<f4")


def quantize(u: Array) -> bytes:
    """Write numbers as multiples of a scale, one for each 256 numbers: the largest of them, over 127.

    Each number is off by half of its scale at most, which is 1/254 of the largest number of its block (and by roundings
    of float32).

    Args:
        u: finite numbers (d,).
    """
    blocks = np.zeros((-(-len(u) // BLOCK), BLOCK), np.float32)
    blocks.reshape(-1)[: len(u)] = u
    scales = (np.abs(blocks).max(axis=1) / LEVELS).astype(SCALE)
    divisors = np.where(scales > 0, scales, np.float32(1))[:, None]  # smaller numbers than float32 has become 0
    codes = np.clip(np.rint(blocks / divisors), -LEVELS, LEVELS).astype(CODE)
    return bytes(scales.tobytes() + codes.reshape(-1)[: len(u)].tobytes())


def dequantize(buffer: bytes | bytearray, size: int) -> Array:
    """Read what ``quantize`` wrote.

    Returns:
        The numbers (d,), float32.
    """
    blocks = -(-size // BLOCK)
    if len(buffer) != blocks * SCALE.itemsize + size:
        raise ValueError
    scales = np.frombuffer(buffer, SCALE, blocks)
    codes = np.frombuffer(buffer, CODE, offset=blocks * SCALE.itemsize)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused with the other arrays
        found: Array = codes.astype(np.float32) * np.repeat(scales, BLOCK)[:size]
    return found


def sparsify(u: Array, k: int) -> bytes:
    """Write the k numbers with the largest absolute values, and where they are.

    Args:
        u: numbers (d,), d < 2^32.
        k: how many are kept, 1 to d.
    """
    kept = np.sort(np.argpartition(np.abs(u), len(u) - k)[len(u) - k :])
    return kept.astype(INDEX).tobytes() + u[kept].astype(VALUE).tobytes()


def densify(buffer: bytes | bytearray, size: int) -> Array:
    """Read what ``sparsify`` wrote.

    Returns:
        The numbers (d,), float32; those that were not kept are 0.
    """
    k, rest = divmod(len(buffer), INDEX.itemsize + VALUE.itemsize)
    kept = np.frombuffer(buffer, INDEX, k).astype(np.int64)
    if rest or (k and kept[-1] >= size) or (np.diff(kept) <= 0).any():
        raise ValueError
    found = np.zeros(size, np.float32)
    found[kept] = np.frombuffer(buffer, VALUE, k, offset=k * INDEX.itemsize)
    return found
