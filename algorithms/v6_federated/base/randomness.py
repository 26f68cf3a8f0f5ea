"""Random numbers that depend on the seed and on their purpose, never on the order of calls."""

import zlib

import numpy as np


def generator(seed: int, purpose: str, organization: int = 0, round_: int = 0) -> np.random.Generator:
    """A random number generator for one purpose."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), organization, round_])
