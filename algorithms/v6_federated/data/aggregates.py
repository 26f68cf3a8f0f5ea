"""What a node answers about its training rows when a preprocessing step, PCA or boosted trees are fitted.

No value of a row is sent as such: a node answers means, sums of squares, counts rounded to a multiple of its minimum,
levels of categories that enough of its rows have, and covariances. docs/preprocessing.md says what many of them reveal
together. ``data.pooling`` adds them up.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.data import pca
from v6_federated.data.columns import Features, check_scale
from v6_federated.data.reading import shortest
from v6_federated.masks import exact
from v6_federated.rules.policy import Policy

BINS = 200  # of the histogram from which a quantile is read
EDGES = BINS + 3


def statistic(
    name: str,
    features: Features,
    policy: Policy,
    columns: Sequence[str],
    counts: bool,
    arrays: Mapping[str, Array],
    pause: Callable[[], None] = lambda: None,
    quiet: bool = False,
    in_a_study: bool = False,
    as_used: Callable[[Array], Array] = lambda X: X,
) -> dict[str, Any]:
    """Compute a statistic of a node's training rows.

    Args:
        name: "moments", "present", "below", "levels", "covariance" or "product".
        features: the rows (n, d) after the steps so far.
        policy: the limits of the node's operator.
        columns: the c columns that "present", "below" and "levels" are about.
        counts: whether "levels" counts the rows of each level.
        arrays: ``lower`` and ``upper`` (c,) for "below"; ``mean`` and ``scale`` (d,) for "covariance" and "product",
            and for the latter ``block`` (d, l).
        pause: is called before each column of a histogram and each block of rows; it may end the task.
        quiet: whether the statistic becomes a part of a sum: columns in which too few rows have a value count as empty,
            instead of a refusal, and "covariance" and "product" are exact sums over rows.
        in_a_study: whether nothing is rounded or left out by its count: central's code does, over a block.
        as_used: holds limits on columns as these two use them.

    Returns:
        "moments": ``mean``, ``mean_rest`` and ``squares`` of all columns of numbers, see ``pca.moments``.
        "present": ``count``, ``mean`` and ``squares`` (c,) of the values that are not missing.
        "below": ``below`` (c, EDGES), how many values lie up to each edge, rounded to a multiple of ``step``.
        "levels": by column, the levels that enough rows have, with their counts or 1.
        "covariance", "product": see ``pca.covariance`` and ``pca.product``.

    Raises:
        SafeError: an array has another shape.
        DataError: values are missing, or words among them, where only numbers can be used.
        PrivacyThresholdViolation: the statistic would describe too few rows.
    """
    _check_shapes(name, columns, len(features.names), arrays)
    _check_size(name, features, policy, columns, arrays)
    if name == "levels":
        least = 1 if in_a_study else policy.minimum_rows_a_class
        return {"levels": {c: _levels(c, features, policy, counts, pause, least) for c in columns}}
    if name == "present":
        return _present(features, policy, columns, quiet, 1 if in_a_study else policy.minimum_rows)
    if name == "below":
        m = 1 if in_a_study else policy.minimum_rows_a_class  # bins of fewer rows than this say nothing more
        few = 1 if in_a_study else policy.minimum_rows
        below = _below(features, policy, columns, arrays["lower"], arrays["upper"], pause, quiet, m, few)
        return {"below": below, "step": m}
    if name == "moments":  # of the columns of numbers, which must be complete
        numbers = Features(features.numeric, features.numbers(), {})
        numbers.check_complete("standardize or pca")
        found = pca.moments(numbers.X)
        if not in_a_study:
            check_squares(numbers.names, found["squares"])
        return found
    features.check_complete("pca")
    mean, scale = arrays["mean"], arrays["scale"]
    check_scale(mean, scale)
    if quiet:
        pause()
        used = as_used((np.asfortranarray(features.X, np.float64) - mean) / scale)
        return {name: pca.exact_covariance(used) if name == "covariance" else pca.exact_product(used, arrays["block"])}
    if name == "covariance":
        return {"covariance": pca.covariance(features.X, mean, scale, pause)}
    return {"product": pca.product(features.X, mean, scale, arrays["block"], pause)}


def check_squares(names: Sequence[str], squares: Array) -> None:
    """Refuse columns that float32 cannot be divided by. In a study it is the block's sum of squares that is checked.

    Args:
        names: of the columns (c,).
        squares: sums of squares about the mean (c,).

    Raises:
        SafeError: there are such columns.
    """
    large = ~(squares <= np.finfo(np.float32).max)
    if large.any():
        named = ",".join(name for name, is_large in zip(names, large, strict=True) if is_large)
        raise SafeError(
            f"the numbers in the column(s) {named} are too large to be squared; give them in another unit, limit "
            f"them (--preprocess clip:lower=A,upper=B,columns={named} before this step), or leave them out "
            f"(--exclude {named})"
        )


def class_counts(y: Array, classes: int, least: int) -> Array:
    """Count the training rows of each class.

    Args:
        y: indices of classes (n,).
        classes: number of classes, c.
        least: rows that a class must have; 1 in a study, where central's code leaves out what is small over a block.

    Returns:
        The counts (c,); 0 for a class that fewer rows have.
    """
    counts = np.bincount(y, minlength=classes)
    return np.where(counts >= least, counts, 0).astype(np.int64)


def about(X: Array, center: Array) -> dict[str, Any]:
    """Add up rows, as sums that can be added to those of other nodes. Nothing is rounded, whatever the center is.

    Args:
        X: numbers (n, c); NaN where there is none.
        center: any numbers (c,) that all nodes use.

    Returns:
        ``count`` (c,), the number of values; ``first``, the sum of their differences from ``center``; ``second``, the
        sum of the squares of these. They follow from exact sums of the values and of their squares.

    Raises:
        SafeError: ``center`` has another shape.
    """
    if center.shape != X.shape[1:]:
        raise SafeError(f"the task sends a center of another shape; the shape must be {X.shape[1:]}")
    given = ~np.isnan(X)
    X, count = np.where(given, X, 0), given.sum(axis=0)
    rows, c, x = count.tolist(), exact.total(center[None]), exact.total(X)
    n_c = c.times(rows)
    squares = exact.total_of_squares(X).at(2 * exact.FINEST)
    first = x + n_c.times([-1] * len(rows))
    # sum of x^2 - 2 c x + c^2
    second = squares + c.times(x).times([-2] * len(rows)) + c.times(n_c)
    return {"count": count.astype(np.int64), "first": first, "second": second}


def counts_of(known: Mapping[str, Sequence[str]], found: Mapping[str, Mapping[str, int]]) -> Array:
    """Count the rows of known levels.

    Args:
        known: levels by column.
        found: what "levels" returned: the counts of the levels that enough rows have.

    Returns:
        The counts, in the order of ``known``; 0 for a level that few rows have.
    """
    return np.array([found[c].get(level, 0) for c, levels in known.items() for level in levels], dtype=np.int64)


def _check_shapes(name: str, columns: Sequence[str], d: int, arrays: Mapping[str, Array]) -> None:
    """Reject arrays that numpy would broadcast: a mean for each row instead of one for each column."""
    wanted = {"below": ("lower", "upper"), "covariance": ("mean", "scale"), "product": ("mean", "scale")}.get(name, ())
    shape = (len(columns) if name == "below" else d,)
    if odd := [a for a in wanted if arrays[a] is None or arrays[a].shape != shape]:
        raise SafeError(f"the task asks for {name} with {', '.join(odd)} of another shape; the shape must be {shape}")


def _check_size(
    name: str, features: Features, policy: Policy, columns: Sequence[str], arrays: Mapping[str, Array]
) -> None:
    """Refuse a statistic that names a column twice, or has more numbers or columns than the operator allows."""
    if len({*columns}) < len(columns):
        raise SafeError("the task names a column twice; name each once")
    if len(columns) > (d := len(features.names)):  # the error about unknown ones would list them all
        raise SafeError(f"the task names {len(columns)} columns, and there are {d}; name some of these")
    if name == "below":
        policy.check_size(len(columns) * EDGES, f"the histogram of {len(columns)} columns")
    if name == "covariance":
        policy.check_size(d * (d + 1) // 2, f"the covariance of {d} columns")
    if name == "product":
        policy.check_size(arrays["block"].size, "the product with the block")
    if name in ("covariance", "product"):
        policy.check_wide(len(features), d)


def check_categories(columns: Sequence[str], raw: Features, policy: Policy) -> None:
    """Check that columns are categories before any step.

    A column of many numbers that a step has clipped to bounds has few values: with one request after another, all of
    its values could be named.

    Args:
        columns: columns whose levels are asked for.
        raw: the training rows before any step.
        policy: the limits of the node's operator.

    Raises:
        SafeError: a step made one of the columns.
        PrivacyThresholdViolation: a column has too many values.
    """
    if made := [c for c in columns if c not in raw.names]:
        raise SafeError(
            f"the column(s) {', '.join(made)} are made by a step and have no levels; name columns of the table"
        )
    for column in columns:
        if column not in raw.words:  # words were counted when they were read
            policy.check_classes(pd.Series(raw.numbers([column])[:, 0]).nunique(), f"the column {column}")


def _levels(
    column: str, features: Features, policy: Policy, counts: bool, pause: Callable[[], None], least: int
) -> dict[str, int]:
    """The levels that enough rows have, with their counts if they are asked for, otherwise with 1."""
    pause()
    if column in features.words:
        values = np.asarray([word for word in features.words[column] if isinstance(word, str)], dtype=str)
    else:
        values = np.asarray([shortest(v) for v in features.numbers([column])[:, 0] if not np.isnan(v)], dtype=str)
    found, rows = np.unique(values, return_counts=True)
    policy.check_classes(len(found), f"the column {column}")
    named = rows >= least
    return {str(v): int(c) if counts else 1 for v, c in zip(found[named], rows[named], strict=True)}


def _present(features: Features, policy: Policy, columns: Sequence[str], quiet: bool, least: int) -> dict[str, Any]:
    """Number of the values that are not missing, their mean, and their sum of squares about it, (c,) each."""
    X = features.numbers(columns)
    given = ~np.isnan(X)
    if quiet:
        given = given & (given.sum(axis=0) >= least)
    count = given.sum(axis=0)
    policy.check_values([c for c, n in zip(columns, count, strict=True) if 0 < n < least])
    mean = np.where(given, X, 0).sum(axis=0) / np.maximum(count, 1)
    squares = np.square(np.where(given, X - mean, 0)).sum(axis=0)
    return {"count": count, "mean": mean, "squares": squares}


def _below(
    features: Features,
    policy: Policy,
    columns: Sequence[str],
    lower: Array,
    upper: Array,
    pause: Callable[[], None],
    quiet: bool,
    m: int,
    least: int,
) -> Array:
    """How many values lie up to each edge, (c, EDGES), rounded to a multiple of m."""
    X = features.numbers(columns)
    counts = np.empty((len(columns), EDGES))
    for i in range(len(columns)):
        pause()
        values = np.sort(X[~np.isnan(X[:, i]), i])
        few = 0 < len(values) < least
        values = values[:0] if few and quiet else values
        policy.check_values([columns[i]] if few and not quiet else [])
        counts[i] = np.searchsorted(values, edges(float(lower[i]), float(upper[i])), side="right")
    return m * np.round(counts / m).astype(np.int64)


def edges(lower: float, upper: float) -> Array:
    """Compute the edges of a histogram.

    Args:
        lower: the first edge.
        upper: the last edge.

    Returns:
        (EDGES,), ascending: the edges of ``BINS`` equal bins, and two more, which enclose the decimal of fewest digits
        from ``lower`` to ``upper``. If many rows have one value, such as 0, it is usually this one.
    """
    value = shortest_between(lower, upper)
    gap = max(4 * np.spacing(abs(value)), np.finfo(np.float64).tiny)  # nodes take smaller numbers as 0
    return np.sort([*np.linspace(lower, upper, BINS + 1), value - gap, value])


def shortest_between(lower: float, upper: float) -> float:
    """Return the decimal of fewest digits from ``lower`` to ``upper``."""
    if lower <= 0 <= upper:
        return 0.0
    first = -math.floor(math.log10(max(abs(lower), abs(upper))))
    rounded = (round((lower + upper) / 2, places) for places in range(first, first + 18))
    return next((value for value in rounded if lower <= value <= upper), (lower + upper) / 2)
