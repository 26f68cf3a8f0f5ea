"""Numbers of new rows in another unit than those that a model was trained on, by the mean and deviation that it keeps.

Nothing else is known of the training rows, so what is said holds for numbers of any distribution with this mean and
deviation:

- At most a share 1 / (1 + k^2) of them is k deviations or more beyond the mean on one side (Cantelli's inequality).
  Rows are remarked if so many are so far on one side that a binomial count has a probability below ``LEVEL``.
- If none is below 0, the mean of n of them is below (1 - a) of the mean with a probability of at most
  exp(-n a^2 / 2 (1 + v^2)), where v is the deviation over the mean (Bernstein's inequality for the lower side). This
  notices numbers that are too small in a column with a long tail, where none is many deviations below the mean.

Rows of another hospital may differ: their mean by ``SHIFT`` deviations (in the second test by a quarter of itself),
their deviation by the factor ``SPREAD``. What is remarked is also ``FACTOR`` times larger or smaller, or more. Too few
rows for these tests are remarked one by one, as is a row that is far above all others.
"""

from dataclasses import dataclass

import numpy as np

LEVEL = 1e-4
SHIFT, SPREAD = 0.25, 1.1
FACTOR = 1.8  # pounds and kilograms differ by 2.2
FAR_ABOVE, FAR_BELOW = 10, 6  # deviations of a single row
FAR_IN_LOGARITHMS = 5  # deviations of its logarithm, if the numbers have a long tail
FEW = 3  # rows that both tests can tell apart from chance, in a column of little spread


@dataclass(frozen=True)
class Remark:
    """Rows that are far from the training rows.

    Attributes:
        rows: which rows (n,).
        factor: about how many times larger or smaller they are; None if single rows are far away.
        larger: whether they are larger.
    """

    rows: np.ndarray
    factor: float | None
    larger: bool


def remark(x: np.ndarray, mean: float, deviation: float) -> Remark | None:
    """Compare the numbers of a column with those of the training rows.

    Args:
        x: the column (n,), NaN where a row has no value.
        mean: of the training rows.
        deviation: standard deviation of the training rows, above 0.

    Returns:
        What is to be said; None if the rows may have the same unit.
    """
    given = np.flatnonzero(~np.isnan(x))
    numbers = x[given]
    z = (numbers - mean) / deviation
    if not len(numbers):
        return None
    found = _together(numbers, z, mean, deviation) or _single(numbers, z, mean, deviation)
    if found is None:
        return None
    rows = np.zeros(len(x), dtype=bool)
    rows[given[found.rows]] = True
    return Remark(rows, found.factor, found.larger)


def _together(x: np.ndarray, z: np.ndarray, mean: float, deviation: float) -> Remark | None:
    """Many rows that are larger, or smaller, by a factor. Zero is zero in any unit, and codes have none."""
    if len(x) >= FEW and len(np.unique(x)) <= 2:
        return None
    size = np.hypot(mean, deviation)
    for side in (-1, 1):
        rows = _beyond(np.where(x == 0, -np.inf, side * z))
        ratio = float(np.sqrt(np.mean(x[rows] ** 2)) / size) if rows.any() else 1.0
        if not 1 / FACTOR < ratio < FACTOR:
            return Remark(rows, max(ratio, 1 / ratio), ratio > 1)
    return _smaller(x, mean, deviation)


def _beyond(k: np.ndarray) -> np.ndarray:
    """Which rows, k deviations beyond the mean (n,), are too many for chance; none if no number of rows is."""
    from scipy.stats import binom

    farthest = np.argsort(-k, kind="stable")
    share = 1 / (1 + (np.maximum(k[farthest] - SHIFT, 0) / SPREAD) ** 2)
    p = binom.sf(np.arange(len(k)), len(k), share)  # of so many rows or more, by the number of rows less 1
    too_many = np.flatnonzero(p < LEVEL)
    return k >= (k[farthest[too_many[-1]]] if too_many.size else np.inf)


def _smaller(x: np.ndarray, mean: float, deviation: float) -> Remark | None:
    found = float(x.mean())
    if x.min() < 0 or mean <= 0 or found * FACTOR > mean:
        return None
    a = 1 - SHIFT - found / mean
    chance = np.exp(-len(x) * a**2 / (2 * (1 + (deviation / mean) ** 2)))
    return Remark(np.ones(len(x), dtype=bool), mean / found, False) if chance < LEVEL else None


def _single(x: np.ndarray, z: np.ndarray, mean: float, deviation: float) -> Remark | None:
    above = z > FAR_ABOVE
    if mean > 0:
        spread = np.sqrt(np.log1p((deviation / mean) ** 2))  # of the logarithms, if these are normal
        above &= np.log(np.maximum(x, mean) / mean) + spread**2 / 2 > FAR_IN_LOGARITHMS * spread
    if above.any():
        return Remark(above, None, True)
    below = z < -FAR_BELOW
    return Remark(below, None, False) if len(x) < FEW and below.any() else None
