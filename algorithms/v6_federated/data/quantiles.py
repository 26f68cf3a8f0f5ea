"""Quantiles of columns over the rows of all nodes, which central reads from histograms."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.data.statistics import Below, edges, shortest_between

HISTOGRAMS = 16  # at most, of a quantile

Ask = Callable[..., Sequence[Any]]  # asks the nodes for a statistic of their training rows; answers by ascending id


def quantile(
    q: float, columns: Sequence[str], n: Array, mean: Array, deviation: Array, ask: Ask
) -> tuple[Array, Array]:
    """Find a quantile of each column over all nodes from histograms.

    The first histogram lies between mean - deviation sqrt((1-q)/q) and mean + deviation sqrt(q/(1-q)), where the
    quantile must be (Cantelli), so nobody's smallest or largest value is needed. While the bin with the quantile holds
    too many rows, for example because a few outliers make the deviation large, the next histogram divides that bin.

    Args:
        q: the share of the values that lie below, from 0 to 1.
        columns: the c columns.
        n: number of values of each column, (c,).
        mean: their mean, (c,).
        deviation: their standard deviation, (c,).
        ask: asks the nodes for a histogram of some columns.

    Returns:
        The quantiles (c,); and how wide the bin is that a quantile was found in because many rows have one value,
        otherwise 0, (c,).
    """
    lower, upper = mean - deviation * np.sqrt((1 - q) / q), mean + deviation * np.sqrt(q / (1 - q))
    found, width = np.full(len(columns), np.nan), np.zeros(len(columns))
    rows, fine = q * n, min(0.01, q / 5, (1 - q) / 5) * n  # a bin may hold 1%, or a fifth of the rows above or below q
    searched = list(range(len(columns)))
    for _ in range(HISTOGRAMS):
        if not searched:
            break
        answers = ask("below", columns=[columns[i] for i in searched], lower=lower[searched], upper=upper[searched])
        below, step = Below.pool(answers)
        again = []
        for i, counts in zip(searched, below, strict=True):
            e = edges(float(lower[i]), float(upper[i]))
            found[i], j = _crossing(rows[i], counts, e)
            # smaller bins would only find where the nodes' roundings jump
            if not j or counts[j] - counts[j - 1] <= max(fine[i], step):
                continue
            lower[i], upper[i] = e[j - 1], e[j]
            if upper[i] - lower[i] <= 1e-12 * abs(upper[i]) + np.finfo(np.float64).tiny:  # one value
                found[i], width[i] = shortest_between(float(lower[i]), float(upper[i])), upper[i] - lower[i]
            else:
                again.append(i)
        searched = again
    return found, width


def _crossing(rows: float, below: Array, edges: Array) -> tuple[float, int]:
    """Where so many rows lie below, linear between two edges, and the index of the upper one.

    If several edges have exactly so many rows below them, it is their middle; if the nodes' roundings leave fewer rows
    in all, it is the first edge above these. The index is then 0.
    """
    j = int(np.searchsorted(below, min(rows, below[-1])))
    if j == 0 or rows >= below[-1]:
        return float(edges[j]), 0
    if below[j] == rows:
        return float(edges[j] + edges[int(np.searchsorted(below, rows, side="right")) - 1]) / 2, 0
    return float(edges[j - 1] + (rows - below[j - 1]) / (below[j] - below[j - 1]) * (edges[j] - edges[j - 1])), j
