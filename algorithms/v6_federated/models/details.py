"""What the last evaluation counts in addition: calibration, the Brier score, and confusion matrices by subgroup.

The ROC and the precision-recall curve follow from the counts by class and band of the score that every evaluation has,
see ``metrics``; nothing more leaves a node for them.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.masks import exact
from v6_federated.masks.summands import Additive, Count, Declared, Sum, each
from v6_federated.messages.result import MOST_ROWS
from v6_federated.models import Model, metrics
from v6_federated.models.alone import alone
from v6_federated.models.linear import predicted
from v6_federated.rules.levels import countable, left_out
from v6_federated.rules.policy import Policy
from v6_federated.rules.rounding import Rounding

PROBABILITIES = 28  # e of sums of probabilities: up to 2^35 rows, exact to 2^-28
BINS = 10  # of the probability of class 1
GUESSING = 0.25  # the Brier score of saying one half
MIDDLES = (np.arange(BINS) + 0.5) / BINS


def has_probabilities(model: Any, classes: Sequence[Any] | None) -> bool:
    """Say whether a model's scores of two classes are probabilities, as those of a cross-entropy are.

    Args:
        model: the model.
        classes: the job's classes; None of a regression.
    """
    return classes is not None and len(classes) == 2 and getattr(model, "kind", "") != "hinge"


def calibration(
    model: Model, w: Any, X: Array, y: Array, rounding: Rounding | None = None, exactly: bool = False
) -> dict[str, Any]:
    """Compare the probabilities of class 1 with how often it is right.

    Args:
        model: the model, for two classes.
        w: its weights (d,).
        X: rows (n, features).
        y: their classes (n,).
        rounding: how the node rounds counts and the Brier score; None means that nothing is rounded.
        exactly: whether the Brier score is an exact sum over the rows, which is not rounded.

    Returns:
        ``counts`` (2, BINS), int64: rows of class 0 and of class 1 by bin of the probability. ``predicted`` (BINS,):
        the sum of the probabilities in each bin; if counts are rounded, as if each were the middle of its bin.
        ``brier`` (1,): the sum of (p - y)^2 over the rows.
    """
    by_row = alone(model) if exactly else None
    exactly = by_row is not None
    z = metrics.log_odds(model.scores(w, X) if by_row is None else by_row.scores_alone(w, X))[:, 0]
    p = np.exp(-np.logaddexp(0, -z))
    bins = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bins + BINS * (y == 1), minlength=2 * BINS)
    predictions = np.bincount(bins, p, minlength=BINS)
    brier: Any = exact.sums(np.square(p - y)) if exactly else np.array([float(np.square(p - y).sum())])
    if rounding:
        counts, predictions = _rounded(counts, rounding)
        brier = brier if exactly else np.array([len(y) * rounding.loss(brier[0] / len(y), len(y), GUESSING)])
    return {"counts": counts.reshape(2, BINS), "predicted": predictions, "brier": brier}


def _rounded(counts: Array, rounding: Rounding) -> tuple[Array, Array]:
    """Rounded counts by class and bin, and the sums of probabilities: those of single rows would tell these rows."""
    counts = rounding.counts(counts.ravel()).reshape(2, BINS)
    return counts, MIDDLES * counts.sum(axis=0)


def by_level(
    model: Model, w: Any, X: Array, y: Array, said: Array, levels: Sequence[str], classes: int, policy: Policy | None,
    rounding: Rounding | None = None,
) -> Array:  # fmt: skip
    """Count predictions by true class, for each level of a column.

    A level is not counted if fewer rows than the node's minimum have it, or if some but too few of its rows have a
    class, nor while the same holds for what is left of all rows: see ``countable``.

    Args:
        model: the model.
        w: its weights (d,).
        X: rows (n, features).
        y: their classes (n,).
        said: the level of each row (n,), None if it is missing.
        levels: the levels that are counted.
        classes: number of classes, c.
        policy: the operator's limits; None in a study, where all levels are counted, see ``of_a_block``.
        rounding: how the node rounds counts; None means that nothing is rounded.

    Returns:
        Counts (levels, c, c), true class by predicted class, int64; zeros for a level that is not counted.
    """
    guess = predicted(model.scores(w, X))
    counted = {*levels} if policy is None else countable(said, y, functools.partial(_few, policy))
    found = np.zeros((len(levels), classes, classes), np.int64)
    for confusion, level in zip(found, levels, strict=True):
        if level in counted:
            own = said == level
            np.add.at(confusion, (y[own], guess[own]), 1)
    if rounding:
        found = np.array([rounding.confusion(c) if c.any() else c for c in found]).reshape(found.shape)
    return found


def _few(policy: Policy, of_class: Array) -> Any:
    """Whether (..., c) rows by class are too few, although there are some."""
    rows = of_class.sum(axis=-1)
    some = (of_class > 0) & (of_class < policy.minimum_rows_a_class)
    return ((rows > 0) & (rows < policy.minimum_rows)) | some.any(axis=-1)


def of_a_block(
    found: Mapping[str, Array], confusion: Array, policy: Policy, rounding: Rounding | None
) -> dict[str, Array]:
    """Round and leave out what is small over a block of a study, whose nodes have sent exact counts.

    Args:
        found: the sums over the block, by name.
        confusion: of all rows of the block (c, c), before it is rounded.
        policy: the limits of the node where central runs.
        rounding: how counts are rounded; None means not at all.

    Returns:
        The sums, as a node that has all rows of the block would send them outside a study.
    """
    kept = dict(found)
    if "counts" in found and rounding:
        kept["counts"], kept["predicted"] = _rounded(np.asarray(found["counts"]), rounding)
    if "subgroups" in found:
        of_levels = np.asarray(found["subgroups"])
        rows = of_levels.sum(axis=2)
        out = left_out(rows, confusion.sum(axis=1) - rows.sum(axis=0), functools.partial(_few, policy))
        of_levels = np.where(out[:, None, None], 0, of_levels)
        if rounding:
            of_levels = np.array([rounding.confusion(c) if c.any() else c for c in of_levels]).reshape(of_levels.shape)
        kept["subgroups"] = of_levels
    return kept


def shapes(calibrated: bool, levels: int, classes: int) -> dict[str, tuple[int, ...]]:
    """The shapes of what a node counts in addition.

    Args:
        calibrated: whether it was asked for a calibration.
        levels: number of levels of the subgroups.
        classes: number of classes.

    Returns:
        The shapes by name, as in ``calibration`` and ``by_level``.
    """
    found: dict[str, tuple[int, ...]] = {}
    if calibrated:
        found |= {"counts": (2, BINS), "predicted": (BINS,), "brier": (1,)}
    return found | ({"subgroups": (levels, classes, classes)} if levels else {})


def summands(
    calibrated: bool,
    levels: int,
    classes: int,
    counts_of: Additive = "hospital",
    hospitals: bool = True,
    scores_of: Additive = "row",
) -> Declared:
    """Declare what ``shapes`` names as sums.

    Args:
        calibrated: whether a calibration is asked for.
        levels: number of levels of the subgroups.
        classes: number of classes.
        counts_of: what counts are additive in, which nodes round themselves outside a study, and what follows from
            them.
        hospitals: whether the hospitals with rows of a level are counted.
        scores_of: what sums of squared errors are additive in.

    Returns:
        The declaration; with subgroups also ``contributes``, whether a node has rows of each level.
    """
    of = shapes(calibrated, levels, classes)
    sums: dict[str, Additive] = {"predicted": counts_of, "brier": scores_of}
    declared: dict[str, Sum | Count] = {
        name: Sum(shape, sums[name], PROBABILITIES) if name in sums else Count(shape, counts_of)
        for name, shape in of.items()
    }
    return {**declared, **({"contributes": Count(levels, "hospital")} if levels and hospitals else {})}


def zeros(calibrated: bool, levels: int, classes: int, hospitals: bool = True) -> dict[str, Array]:
    """What a node without held-out rows adds to sums.

    Args:
        calibrated: whether a calibration is asked for.
        levels: number of levels of the subgroups.
        classes: number of classes.
        hospitals: as for ``summands``.

    Returns:
        Zeros, by name, of the kinds that ``summands`` declares.
    """
    declared = summands(calibrated, levels, classes, hospitals=hospitals)
    return {
        item.name: np.zeros(item.shape, np.int64 if item.unit is None else np.float64)
        for name, summand in each(declared)
        for item in summand.items(name, None)
    }


def wrong(details: Mapping[str, Array], calibrated: bool, levels: int, classes: int) -> str | None:
    """Find what is wrong with what a node counts in addition.

    Args:
        details: what it sent, of ``calibration`` and of ``by_level``; empty if it has no rows to count.
        calibrated: whether it was asked for a calibration.
        levels: number of levels of the subgroups.
        classes: number of classes.

    Returns:
        What is wrong, for the error; None if nothing is.
    """
    asked = shapes(calibrated, levels, classes)
    problem = f"sent malformed details of its evaluation; expected {', '.join(asked) or 'none'}"
    if details and {*details} != {*asked}:
        return problem
    for name, array in details.items():
        whole = name not in ("counts", "subgroups") or not (array % 1).any()
        if array.shape != asked[name] or not whole or not ((array >= 0) & (array < MOST_ROWS)).all():
            return problem
    if "counts" in details:
        rows = details["counts"].sum(axis=0)
        if (details["predicted"] > rows * (1 + 1e-9)).any() or details["brier"][0] > rows.sum():
            return "sent probabilities above 1 in the details of its evaluation"
    return None


def curves(sums: Sequence[Mapping[str, Any]], evaluations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up calibrations, and read the curves of all rows.

    Args:
        sums: what ``calibration`` returned, of each node or block.
        evaluations: their evaluations.

    Returns:
        ``brier``; ``calibration``: ``lower``, ``upper``, ``n``, ``predicted`` (mean probability) and ``observed``
        (share of class 1) of each bin; ``roc`` and ``precision_recall``: points, from the highest scores down. Empty if
        there are none.
    """
    counted = [s for s in sums if np.sum(s["counts"])]
    if not counted:
        return {}
    counts, predictions = (np.sum([np.asarray(s[name]) for s in counted], axis=0) for name in ("counts", "predicted"))
    rows = counts.sum(axis=0)
    bins = [
        {
            "lower": i / BINS,
            "upper": (i + 1) / BINS,
            "n": int(n),
            "predicted": float(predictions[i] / n) if n else None,
            "observed": float(counts[1, i] / n) if n else None,
        }
        for i, n in enumerate(rows)
    ]
    brier = sum(float(np.asarray(s["brier"])[0]) for s in counted) / float(rows.sum())
    return {"brier": brier, "calibration": bins, **_points(evaluations)}


def _points(evaluations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The points of both curves, one for each band that holds rows."""
    found = [*metrics.both_sides([e for e in evaluations if e and e["n"]])]
    if len(found) != 1:
        return {}
    outside, inside = found[0][:, ::-1]
    held = (outside + inside) > 0
    fp, tp = np.cumsum(outside)[held], np.cumsum(inside)[held]
    roc = np.column_stack([fp / fp[-1], tp / tp[-1]])
    recall = np.column_stack([tp / tp[-1], tp / (tp + fp)])
    return {
        "roc": [[0.0, 0.0], *roc.tolist()],
        "precision_recall": [[0.0, float(recall[0, 1])], *recall.tolist()],
    }


def subgroups(column: str, levels: Sequence[str], counts: Sequence[Any]) -> dict[str, Any]:
    """Add up the confusion matrices of subgroups.

    Args:
        column: the column.
        levels: its levels.
        counts: what ``by_level`` returned, of each node or block.

    Returns:
        ``column``; ``rows``: ``level``, ``evaluated``, ``accuracy`` and ``confusion`` of each level; ``suppressed``:
        the levels that no node has counted.
    """
    total = np.sum([np.asarray(c) for c in counts], axis=0) if counts else np.zeros((len(levels), 1, 1))
    rows = [
        {
            "level": level,
            "evaluated": int(c.sum()),
            "accuracy": float(np.trace(c) / c.sum()),
            "confusion": c.astype(int).tolist(),
        }
        for level, c in zip(levels, total, strict=True)
        if c.sum()
    ]
    return {
        "column": column,
        "rows": rows,
        "suppressed": [v for v, c in zip(levels, total, strict=True) if not c.sum()],
    }
