"""What central makes of the nodes' statistics (``data.aggregates``): checks of their answers, sums and quantiles."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.data.aggregates import EDGES, edges, shortest_between
from v6_federated.data.columns import OMIT
from v6_federated.messages.codec import Shape

MOST_PRODUCT = 1e36  # of two values of a row: sums of such products fit float32
HISTOGRAMS = 16  # at most, of a quantile

Ask = Callable[..., Sequence[Any]]  # asks the nodes for a statistic of their training rows; answers by ascending id


def shapes(
    statistic: str,
    d: int,
    columns: Sequence[str] = (),
    draw: int | None = None,
    block: Mapping[str, Any] | None = None,
) -> dict[str, Shape]:
    """Return the shapes of the arrays in an answer.

    Args:
        statistic: its name, see ``aggregates.statistic``.
        d: number of columns of numbers; of classes for "classes", 1 for "label".
        columns: the columns that it is about.
        draw: columns of the block that is multiplied, if the nodes draw it.
        block: the block that is multiplied, a payload, if it is sent.

    Returns:
        The shapes, by name.
    """
    c, wide = len(columns), draw if block is None else block["shapes"]["Q"][1]
    of: dict[str, dict[str, Shape]] = {
        "levels": {},
        "present": {"count": (c,), "mean": (c,), "squares": (c,)},
        "below": {"below": (c, EDGES)},
        "moments": {"mean": (d,), "mean_rest": (d,), "squares": (d,)},
        "label": {"mean": (d,), "mean_rest": (d,), "squares": (d,)},
        "covariance": {"covariance": (d * (d + 1) // 2,)},
        "product": {"product": (d, wide)},
        "classes": {"classes": (d,)},
    }
    return of[statistic]


def what_is_wrong(answer: Any) -> str | None:
    """Find impossible numbers in a node's statistic: added to the others, they would end the job.

    A column's values fit float32, so its mean does too, and the sum of their squares is at most n times the square of
    the largest float32. Counts are n at most. Products, in float32, are of values up to 10^18.

    Args:
        answer: the answer, with its number of rows n.

    Returns:
        What is wrong with it, for the error; None if nothing is.
    """
    most, n = float(np.finfo(np.float32).max), answer.n
    bounds = {
        "mean": (-most, most),
        "mean_rest": (-most, most),
        "squares": (0, n * most**2),
        "count": (0, n),
        "classes": (0, n),
        "below": (0, 2 * n),
        "covariance": (-4 * n * most**2, 4 * n * most**2),
        "product": (-n * MOST_PRODUCT, n * MOST_PRODUCT),
    }
    for name, array in answer.arrays.items():
        low, high = bounds[name]
        if array.size and not (low <= float(array.min()) and float(array.max()) <= high):
            return f"sent {name} that {n} rows cannot have; expected numbers from {low:g} to {high:g}"
    if "squares" in answer.arrays:
        mean = np.add(answer["mean"], answer.arrays.get("mean_rest", 0), dtype=np.float64)
        if not (answer["squares"] / n + np.square(mean) <= most**2).all():
            return f"sent means and sums of squares that {n} rows cannot have; expected those of values up to {most:g}"
    if "below" in answer.arrays and not (type(answer.values.get("step")) is int and answer.values["step"] >= 1):
        return "did not say of what its counts are multiples; expected step, a whole number from 1"
    return None


def spread(statistic: str) -> Mapping[str, Callable[[Any], Array] | None]:
    """Say what of a node's statistic is compared with those of the other nodes: its values' deviation, not their mean.

    Args:
        statistic: its name, see ``aggregates.statistic``.

    Returns:
        By array, a function of an answer; None for an array that is not compared.
    """

    def deviation(name: str) -> Callable[[Any], Array]:
        # the root of a sum of squares a row: in the units of the columns, so that ratios are those of deviations
        return lambda answer: np.sqrt(np.abs(answer[name], dtype=np.float64).sum(keepdims=True) / answer.n)

    own = {"covariance": "covariance", "product": "product"}
    compared = {"moments": "squares", "label": "squares", **own}.get(statistic)
    unmeasured = dict.fromkeys(("mean", "mean_rest", "squares", "count", "below", "classes"))
    return {**unmeasured, **({compared: deviation(compared)} if compared else {})}


def pooled_levels(columns: Sequence[str], answers: Sequence[Any]) -> dict[str, dict[str, int]]:
    """Add up the nodes' levels.

    Args:
        columns: the columns that were asked for.
        answers: the nodes' levels.

    Returns:
        For each column its levels, sorted, with their counts over all nodes.

    Raises:
        SafeError: no node has enough rows with one value of a column.
    """
    pooled: dict[str, dict[str, int]] = {c: {} for c in columns}
    for a in answers:
        for c in columns:
            for level, count in a.values["levels"][c].items():
                pooled[c][level] = pooled[c].get(level, 0) + count
    if empty := [c for c in columns if not pooled[c]]:
        raise SafeError(
            f"the column(s) {', '.join(empty)} have no level that enough rows of a node have (under masks, of three); "
            f"choose columns of categories, or {OMIT}"
        )
    return {c: dict(sorted(levels.items())) for c, levels in pooled.items()}


def pooled_present(columns: Sequence[str], answers: Sequence[Any]) -> tuple[Array, Array, Array]:
    """Add up the moments of the values that are not missing.

    Args:
        columns: the c columns that were asked for.
        answers: the nodes' counts, means and sums of squares.

    Returns:
        Number of values, mean, and standard deviation (n in the denominator) over all nodes, (c,) each.

    Raises:
        SafeError: a column has no value at any node.
    """
    n = np.asarray(sum(a["count"] for a in answers))
    if empty := [c for c, count in zip(columns, n, strict=True) if count == 0]:
        raise SafeError(f"no node has a value in the column(s) {', '.join(empty)}; {OMIT}")
    mean = np.asarray(sum(a["count"] * a["mean"] for a in answers)) / n
    squares = sum(a["squares"] + a["count"] * np.square(a["mean"] - mean) for a in answers)
    return n, mean, np.sqrt(squares / n)


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
        below, step = np.asarray(sum(a["below"] for a in answers)), sum(a.values["step"] for a in answers)
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
