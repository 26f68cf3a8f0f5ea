"""Statistics that steps are fitted to: what nodes answer about their training rows, and what central makes of it.

No value of a row is sent as such (docs/preprocessing.md says what many statistics tell): means, sums of squares, counts
rounded to a multiple of the node's minimum, levels that enough of its rows have, and for PCA what ``components`` says.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.errors import SafeError
from v6_federated.data import pca
from v6_federated.data.columns import Features, shortest
from v6_federated.messages.codec import Shape
from v6_federated.privacy.policy import Policy

MOST_PRODUCT = 1e36  # of two values of a row; sums of such products fit float32
HISTOGRAMS = 16  # at most, of a quantile
BINS = 200  # of the histogram that a quantile is read from

# asks the nodes for a statistic of their training rows after the steps so far; answers by ascending id
Ask = Callable[..., Sequence[Any]]


def statistic(
    name: str,
    features: Features,
    policy: Policy,
    columns: Sequence[str],
    counts: bool,
    arrays: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """A statistic of a node's training rows, after the steps so far. Refused where it would describe too few rows."""
    _check_shapes(name, columns, len(features.names), arrays)
    if name == "levels":
        return {"levels": {c: _levels(c, features, policy, counts) for c in columns}}
    if name == "present":
        return _present(features, policy, columns)
    if name == "below":
        step = {"step": policy.minimum_rows_a_class}  # of which counts are multiples: finer bins tell no more
        return {"below": _below(features, policy, columns, arrays["lower"], arrays["upper"]), **step}
    if name == "moments":  # of the columns of numbers, which must be complete
        numbers = Features(features.numeric, features.numbers(), {})
        numbers.check_complete("standardize or pca")
        return pca.moments(numbers.X)
    features.check_complete("pca")
    mean, scale = arrays["mean"], arrays["scale"]
    if name == "covariance":
        return {"covariance": pca.covariance(features.X, mean, scale)}
    return {"product": pca.product(features.X, mean, scale, arrays["block"])}


def shapes(
    statistic: str,
    d: int,
    columns: Sequence[str] = (),
    counts: bool = False,
    draw: int | None = None,
    block: Mapping[str, Any] | None = None,
) -> dict[str, Shape]:
    """The arrays that a statistic of d columns of numbers answers, by name; the rest is as it is asked for."""
    c, wide = len(columns), draw if block is None else block["shapes"]["Q"][1]
    of: dict[str, dict[str, Shape]] = {
        "levels": {},
        "present": {"count": (c,), "mean": (c,), "squares": (c,)},
        "below": {"below": (c, BINS + 1)},
        "moments": {"mean": (d,), "mean_rest": (d,), "squares": (d,)},
        "covariance": {"covariance": (d * (d + 1) // 2,)},
        "product": {"product": (d, wide)},
    }
    return of[statistic]


def wrong(answer: Any) -> str | None:
    """What is wrong with the numbers of a node's statistic, if anything: one node's nonsense, pooled with the others',
    would end the job.

    A column's values fit float32, so its mean does too, and the sum of their squares is at most n of the largest;
    counts are n at most; products, in float32, are of values up to 10^18.
    """
    most, n = float(np.finfo(np.float32).max), answer.n
    bounds = {
        "mean": (-most, most),
        "mean_rest": (-most, most),
        "squares": (0, n * most**2),
        "count": (0, n),
        "below": (0, 2 * n),
        "covariance": (-4 * n * most**2, 4 * n * most**2),
        "product": (-n * MOST_PRODUCT, n * MOST_PRODUCT),
    }
    for name, array in answer.arrays.items():
        low, high = bounds[name]
        if array.size and not (low <= float(array.min()) and float(array.max()) <= high):
            return f"sends {name} that no {n} rows have; expected numbers from {low:g} to {high:g}"
    if "squares" in answer.arrays:
        mean = np.add(answer["mean"], answer.arrays.get("mean_rest", 0), dtype=np.float64)
        if not (answer["squares"] / n + np.square(mean) <= most**2).all():
            return f"sends means and sums of squares that no {n} rows have; expected those of numbers up to {most:g}"
    if "below" in answer.arrays and not (type(answer.values.get("step")) is int and answer.values["step"] >= 1):
        return "does not say of what its counts are multiples; expected a whole number from 1"
    return None


def _check_shapes(name: str, columns: Sequence[str], d: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse arrays that numpy would broadcast: a mean for each row in place of one for each column."""
    wanted = {"below": ("lower", "upper"), "covariance": ("mean", "scale"), "product": ("mean", "scale")}.get(name, ())
    shape = (len(columns) if name == "below" else d,)
    if odd := [a for a in wanted if arrays[a] is None or arrays[a].shape != shape]:
        raise SafeError(f"{name} is asked for with {', '.join(odd)} of another shape than {shape}; expected that one")


def check_categories(columns: Sequence[str], raw: Features, policy: Policy) -> None:
    """Refuse levels of columns of numbers that are no categories before any step: clipped to bounds, a column of many
    values could be named part by part."""
    if made := [c for c in columns if c not in raw.names]:
        raise SafeError(f"the column(s) {', '.join(made)} are made by a step and have no levels; expected the table's")
    for column in columns:
        if column not in raw.words:  # words have been counted when they were read
            policy.check_classes(pd.Series(raw.numbers([column])[:, 0]).nunique(), f"the column {column}")


def _levels(column: str, features: Features, policy: Policy, counts: bool) -> dict[str, int]:
    """The levels that enough rows have, with their counts where they are asked for, else 1."""
    if column in features.words:
        values = np.asarray([word for word in features.words[column] if isinstance(word, str)], dtype=str)
    else:
        values = np.asarray([shortest(v) for v in features.numbers([column])[:, 0] if not np.isnan(v)], dtype=str)
    found, rows = np.unique(values, return_counts=True)
    policy.check_classes(len(found), f"the column {column}")
    named = rows >= policy.minimum_rows_a_class
    return {str(v): int(c) if counts else 1 for v, c in zip(found[named], rows[named], strict=True)}


def pooled_levels(columns: Sequence[str], answers: Sequence[Any]) -> dict[str, dict[str, int]]:
    """Of each column its levels, sorted, with their counts over all nodes."""
    pooled: dict[str, dict[str, int]] = {c: {} for c in columns}
    for a in answers:
        for c in columns:
            for level, count in a.values["levels"][c].items():
                pooled[c][level] = pooled[c].get(level, 0) + count
    if empty := [c for c in columns if not pooled[c]]:
        raise SafeError(
            f"no node has enough rows with one value of the column(s) {', '.join(empty)} to name it; expected "
            "categories, or leave them out"
        )
    return {c: dict(sorted(levels.items())) for c, levels in pooled.items()}


def _present(features: Features, policy: Policy, columns: Sequence[str]) -> dict[str, Any]:
    """Number, mean and sum of squares about it of the values that are not missing, (columns,) each."""
    X = features.numbers(columns)
    given = ~np.isnan(X)
    count = given.sum(axis=0)
    policy.check_values([c for c, n in zip(columns, count, strict=True) if 0 < n < policy.minimum_rows])
    mean = np.where(given, X, 0).sum(axis=0) / np.maximum(count, 1)
    squares = np.square(np.where(given, X - mean, 0)).sum(axis=0)
    return {"count": count, "mean": mean, "squares": squares}


def pooled_present(columns: Sequence[str], answers: Sequence[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number of values, mean and deviation of each column over all nodes."""
    n = np.asarray(sum(a["count"] for a in answers))
    if empty := [c for c, count in zip(columns, n, strict=True) if count == 0]:
        raise SafeError(f"no node has a value in the column(s) {', '.join(empty)}; expected some, or leave them out")
    mean = np.asarray(sum(a["count"] * a["mean"] for a in answers)) / n
    squares = sum(a["squares"] + a["count"] * np.square(a["mean"] - mean) for a in answers)
    return n, mean, np.sqrt(squares / n)


def quantile(
    q: float, columns: Sequence[str], n: np.ndarray, mean: np.ndarray, deviation: np.ndarray, ask: Ask
) -> tuple[np.ndarray, np.ndarray]:
    """The quantile q of each column over all nodes, (columns,), from histograms of ``BINS`` bins; and, where it is a
    value that many rows have, within what width that is known, else 0.

    A quantile lies between mean - deviation sqrt((1-q)/q) and mean + deviation sqrt(q/(1-q)) (Cantelli), so the edges
    are agreed without anybody's smallest or largest value. Up to ``HISTOGRAMS`` are asked for, each of the columns
    whose quantile is not known yet.
    """
    lower, upper = mean - deviation * np.sqrt((1 - q) / q), mean + deviation * np.sqrt(q / (1 - q))
    every = searches = [_Search(*of) for of in zip(columns, q * n, _fine(q) * n, lower, upper, strict=True)]
    for _ in range(HISTOGRAMS):
        if not searches:
            break
        low, high = np.array([s.span for s in searches]).T
        answers = ask("below", columns=[s.column for s in searches], lower=low, upper=high)
        edges = np.linspace(low, high, BINS + 1, axis=1)
        below, step = np.asarray(sum(a["below"] for a in answers)), sum(a.values["step"] for a in answers)
        searches = [s for s, b, e in zip(searches, below, edges, strict=True) if s.goes_on(b, e, step)]
    return np.array([s.found for s in every]), np.array([s.width for s in every])


def _fine(q: float) -> float:
    """The share of the rows that one bin may hold: 1%, or a fifth of those beyond the quantile."""
    return min(0.01, q / 5, (1 - q) / 5)


@dataclass
class _Search:
    """Where a column's quantile is, as far as it is known.

    Where the bin that it lies in holds too many rows, as where a few outliers make the deviation large, the next
    histogram divides that bin. Where all of them lie in one part of it they may have one value: the next one looks at
    the shortest decimal there. Other such values are found as far as float64 tells them apart.
    """

    column: str
    rows: float  # below the quantile
    fine: float  # rows that a bin may hold
    lower: float
    upper: float
    held: float = np.inf  # rows of the bin from lower to upper
    guess: float | None = None  # the one value that they may have
    refuted: float | None = None
    found: float = np.nan
    width: float = 0.0

    @property
    def span(self) -> tuple[float, float]:
        """Of the next histogram."""
        if self.guess is None:
            return self.lower, self.upper
        return self.guess - self._reach(self.guess), self.guess + self._reach(self.guess)

    def goes_on(self, below: np.ndarray, edges: np.ndarray, step: int) -> bool:
        """Take in a histogram of the span, whose counts are multiples of ``step`` or sums of such; whether another is
        needed."""
        if self.guess is not None:
            return self._goes_on_from(self.guess, below)
        self.found, j = _crossing(self.rows, below, edges)
        # finer bins would not tell apart what the nodes' roundings leave open
        if not j or (inside := float(below[j] - below[j - 1])) <= max(self.fine, step):
            return False
        self.lower, self.upper = float(edges[j - 1]), float(edges[j])
        shortest_ = _shortest_between(self.lower, self.upper)
        if self.upper - self.lower <= 1e-12 * abs(self.upper):
            self.found, self.width = shortest_, self.upper - self.lower
            return False
        if inside == self.held and shortest_ != self.refuted:
            self.guess = shortest_
        self.held = inside
        return True

    def _goes_on_from(self, guess: float, below: np.ndarray) -> bool:
        """Whether the rows have another value than the one they were taken to have."""
        if below[-1] - below[0] == self.held:
            self.found, self.width = guess, 2 * self._reach(guess)
            return False
        self.guess, self.refuted = None, guess
        return True

    @staticmethod
    def _reach(guess: float) -> float:
        return float(4 * np.spacing(abs(guess)))


def _shortest_between(low: float, high: float) -> float:
    """The decimal of fewest digits from ``low`` to ``high``."""
    if low <= 0 <= high:
        return 0.0
    first = -math.floor(math.log10(max(abs(low), abs(high))))
    rounded = (round((low + high) / 2, places) for places in range(first, first + 18))
    return next((value for value in rounded if low <= value <= high), (low + high) / 2)


def _crossing(rows: float, below: np.ndarray, edges: np.ndarray) -> tuple[float, int]:
    """Where so many rows lie below: between two edges, of which the upper one's place is told too; in the middle where
    several have just so many below them. The nodes' roundings may leave fewer in all, up to an edge: then there."""
    j = int(np.searchsorted(below, min(rows, below[-1])))
    if j == 0 or rows >= below[-1]:
        return float(edges[j]), 0
    if below[j] == rows:
        return float(edges[j] + edges[int(np.searchsorted(below, rows, side="right")) - 1]) / 2, 0
    return float(edges[j - 1] + (rows - below[j - 1]) / (below[j] - below[j - 1]) * (edges[j] - edges[j - 1])), j


def _below(
    features: Features, policy: Policy, columns: Sequence[str], lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Values up to each edge, (columns, BINS + 1), rounded to a multiple of the rows that a class must have."""
    X, edges, m = features.numbers(columns), np.linspace(lower, upper, BINS + 1, axis=1), policy.minimum_rows_a_class
    counts = np.empty(edges.shape)
    for i in range(len(columns)):
        values = np.sort(X[~np.isnan(X[:, i]), i])
        policy.check_values([columns[i]] if 0 < len(values) < policy.minimum_rows else [])
        counts[i] = np.searchsorted(values, edges[i], side="right")
    return m * np.round(counts / m)
