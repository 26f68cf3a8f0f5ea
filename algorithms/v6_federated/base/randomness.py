"""Random numbers that depend on the seed and on their purpose, never on the order of calls."""

import zlib

import numpy as np


def generator(seed: int, purpose: str, organization: int = 0, round_: int = 0) -> np.random.Generator:
    """A random number generator for one purpose.

    Args:
        seed: the job's seed, 0 or more.
        purpose: what the numbers are for, for example ``"shuffle"``.
        organization: id of the organization that draws them; 0 is central.
        round_: the round in which they are drawn; 0 is the preparation.

    Returns:
        A generator whose numbers are the same whenever all four arguments are.
    """
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), organization, round_])
