"""Loss, accuracy, confusion matrix and AUC, from counts only: no score of a patient leaves a node. Of a regression the
mean squared error and R squared, from sums.

For the AUC a node counts its rows by class and band of the score. Whoever chooses the weights chooses the scores, so
counts of few rows can describe few people: nodes count no fewer rows than their minimum.
Bands are equal steps of a monotone function of the score, the same at all nodes, so that counts can be added; within
a band, rows are taken as tied. They are finest about the median score, and as fine as the scores are close together, as
far as the evaluation before tells.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from v6_federated.base.errors import SafeError
from v6_federated.data.source import LARGEST, Rows
from v6_federated.messages.codec import DIVERGED
from v6_federated.models import Model
from v6_federated.models.linear import predicted

MOST_ROWS = 2**53  # which float64 and JSON hold exactly
MOST_LOSS = 1e100
SCALE = 0.3  # log-odds at which a score is halfway between even and certain, where no evaluation has told
SCALES, MOST_ODDS = (1e-4, 1e4), 1e4
FEW = 0.05  # share of the rows that tells nothing of how far they are apart


def problems(classes: int) -> int:
    """Of one class against the rest: one problem when binary, one a class otherwise."""
    return 1 if classes == 2 else classes


def evaluate(
    model: Model,
    w: Any,
    rows: Rows,
    classes: int,
    bands: int,
    scale: float = SCALE,
    centers: Sequence[float] | None = None,
) -> dict[str, Any]:
    """What a node answers about its rows.

    Args:
        scale: log-odds, beside those of the centre, halfway to the outermost band.
        centers: log-odds of each problem where bands are finest; None where all classes are taken as as likely.

    Returns:
        n: rows; loss: their mean; confusion: counts (classes, classes), true class by predicted class;
        bands: counts (problems, 2, bands) of rows outside and inside the class by band, one problem when binary,
        one a class otherwise; empty when ``bands`` is 0.
    """
    scores = model.scores(w, rows.X)
    if not np.isfinite(scores).all():
        raise SafeError(f"the model's scores are not finite; {DIVERGED}")
    guess = predicted(scores)
    confusion = np.bincount(rows.y * classes + guess, minlength=classes * classes).reshape(classes, classes)
    answer: dict[str, Any] = {
        "n": len(rows),
        "loss": model.loss(scores, rows.y),
        "confusion": confusion.tolist(),
        "bands": [],
    }
    if bands:
        odds = _log_odds(scores) - np.asarray(middle(centers, problems(classes)))
        share = 0.5 + 0.5 * odds / (np.abs(odds) + scale)  # in (0, 1), finest about the centre
        band = np.minimum((bands * share).astype(np.int64), bands - 1)
        for column, positive in enumerate([1] if classes == 2 else range(classes)):
            inside = rows.y == positive
            counts = np.bincount(band[:, column] + bands * inside, minlength=2 * bands)
            answer["bands"].append(counts.reshape(2, bands).tolist())
    return answer


def evaluate_regression(model: Model, w: Any, rows: Rows) -> dict[str, Any]:
    """What a node answers about rows whose label is a number.

    Returns:
        n: rows; loss: mean squared error; mean: of the labels; squares: their sum of squares about it.
    """
    scores = model.scores(w, rows.X)
    if not np.isfinite(scores).all():
        raise SafeError(f"the model's predictions are not finite; {DIVERGED}")
    mean = float(rows.y.mean())
    squares = float(np.sum((rows.y - mean) ** 2))
    return {"n": len(rows), "loss": model.loss(scores, rows.y), "mean": mean, "squares": squares}


def _log_odds(scores: np.ndarray) -> np.ndarray:
    """Of each class against the rest, float64: of one column the score itself, else of the softmax."""
    z = np.asarray(scores, dtype=np.float64)
    if z.shape[1] > 1:
        shifted = np.exp(z - z.max(axis=1, keepdims=True))
        p = shifted / shifted.sum(axis=1, keepdims=True)
        tiny = np.finfo(np.float64).tiny
        odds = np.log(np.maximum(p, tiny)) - np.log(np.maximum(1 - p, tiny))
        # of two columns one is enough: the second, as of one column
        z = odds[:, 1:] if z.shape[1] == 2 else odds
    return z


def next_bands(
    answers: Sequence[dict[str, Any]], scale: float, centers: Sequence[float] | None, into: bool = False
) -> tuple[float, Sequence[float] | None]:
    """``scale`` and ``centers`` of the next evaluation, read off the bands of one with these: each problem's median
    score, and the rows' median distance from it, the median of all problems.

    Where most rows share a band, whether they are tied, as those with a zero in a column, or only close together, the
    bands cannot tell. The distance is then that of the others; or, to go ``into`` that band, half the distance between
    the quartiles, as if its rows were spread evenly.
    """
    counted = [np.asarray(a["bands"]) for a in answers if a and a["n"] and a["bands"]]
    if not counted or len({c.shape for c in counted}) > 1:
        return scale, centers
    counts = np.sum(counted, axis=(0, 2))  # (problems, bands)
    bands = counts.shape[1]
    steps = (2 * np.arange(bands) + 1) / bands - 1  # the bands' middles
    placed, spreads = [], []
    for c, middle_ in zip(counts, middle(centers, len(counts)), strict=True):
        low, median, high = scale * (q := _quartiles(c)) / (1 - np.abs(q))
        others = np.where(np.arange(bands) == c.argmax(), 0, c) if 2 * c.max() > c.sum() else c
        if into or others.sum() < FEW * c.sum():
            spread = (high - low) / 2
        else:
            distance = np.abs(scale * steps / (1 - np.abs(steps)) - median)
            order = np.argsort(distance)
            spread = distance[order][np.searchsorted(np.cumsum(others[order]), others.sum() / 2)]
        placed.append(float(np.clip(middle_ + median, -MOST_ODDS, MOST_ODDS)))
        spreads.append(spread)
    return float(np.clip(np.median(spreads), *SCALES)), placed


def _quartiles(counts: np.ndarray) -> np.ndarray:
    """Where a quarter, half and three quarters of the rows lie below, in (-1, 1): linear within a band; the outermost
    ones, which have no end, up to their middle."""
    below, n = np.append(0, np.cumsum(counts)), len(counts)
    at = np.interp(below[-1] * np.array([0.25, 0.5, 0.75]), below, np.linspace(-1, 1, n + 1))
    return np.clip(at, 1 / n - 1, 1 - 1 / n)


def middle(centers: Sequence[float] | None, problems: int) -> Sequence[float]:
    """The log-odds about which bands are finest, of each problem."""
    return [-np.log(max(problems - 1, 1))] * problems if centers is None else centers


def is_placement(scale: Any, centers: Any, classes: int | None) -> bool:
    """Whether these can be the ``scale`` and ``centers`` of an evaluation, of so many classes."""
    if type(scale) is not float or not SCALES[0] <= scale <= SCALES[1]:
        return False
    if centers is None:
        return True
    fit = isinstance(centers, list) and (classes is None or len(centers) == problems(classes))
    return fit and all(type(c) is float and abs(c) <= MOST_ODDS for c in centers)


def is_loss(value: Any) -> bool:
    """Whether a value is a mean or a sum of losses: finite, not negative, with room for sums of them."""
    return type(value) in (int, float) and 0 <= value < MOST_LOSS


def is_evaluation(answer: Any, classes: int | None) -> bool:
    """Whether a node's answer has the form of ``evaluate``'s, of so many classes; of ``evaluate_regression``'s where
    ``classes`` is None."""
    if not isinstance(answer, dict) or type(answer.get("n")) is not int or not 0 <= answer["n"] < MOST_ROWS:
        return False
    if not answer["n"]:
        return True
    try:
        if not is_loss(answer["loss"]):
            return False
        if classes is None:
            mean = answer["mean"]
            return type(mean) is float and abs(mean) <= LARGEST and is_loss(answer["squares"])
        confusion = np.asarray(answer["confusion"])
        bands = [np.asarray(answer["bands"])] if answer["bands"] else []
        # none above n, so that no sum of them wraps around; each row is counted once, in bands once for each problem
        n, each = answer["n"], [confusion, *(problem for b in bands for problem in b)]
        counts = all(a.dtype.kind == "i" and a.min() >= 0 and a.max() <= n and _total(a) == n for a in each)
        layout = all(b.ndim == 3 and b.shape[:2] == (problems(classes), 2) for b in bands)
        return bool(counts and layout and confusion.shape == (classes, classes))
    except (KeyError, ValueError, TypeError):
        return False


def _total(counts: np.ndarray) -> int:
    return sum(map(int, counts.ravel()))


def combine_regression(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One evaluation of several nodes' sums: n, loss (weighted by n), r2 (None where all labels are equal)."""
    answers = [a for a in answers if a and a["n"]]
    if not answers:
        return {"evaluated": 0, "loss": None, "accuracy": None, "auc": None, "r2": None}
    n, means = np.array([a["n"] for a in answers]), np.array([a["mean"] for a in answers])
    loss = float(n @ [a["loss"] for a in answers] / n.sum())
    total = sum(a["squares"] for a in answers) + float(n @ (means - n @ means / n.sum()) ** 2)
    r2 = 1 - loss * int(n.sum()) / total if total > 0 else None
    return {"evaluated": int(n.sum()), "loss": loss, "accuracy": None, "auc": None, "r2": r2}


def combine(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One evaluation of several nodes' counts: n, loss (weighted by n), accuracy, auc, confusion."""
    answers = [a for a in answers if a and a["n"]]
    if not answers:
        return {"evaluated": 0, "loss": None, "accuracy": None, "auc": None, "confusion": None}
    n = sum(a["n"] for a in answers)
    confusion = np.sum([a["confusion"] for a in answers], axis=0)
    return {
        "evaluated": n,
        "loss": sum(a["n"] * a["loss"] for a in answers) / n,
        "accuracy": float(np.trace(confusion) / n),
        "auc": _auc(answers),
        "confusion": confusion.tolist(),
    }


def _auc(answers: Sequence[dict[str, Any]]) -> float | None:
    """Area under the ROC curve, the mean over one-against-the-rest problems in which both sides have rows."""
    areas = [
        float(inside @ (np.cumsum(outside) - outside / 2) / (inside.sum() * outside.sum()))
        for outside, inside in _both_sides(answers)
    ]
    return float(np.mean(areas)) if areas else None


def blur(answers: Sequence[dict[str, Any]]) -> float | None:
    """By how much the AUC may be off at most, as rows that share a band are taken as tied; None where there is none."""
    ties = [float(inside @ outside / (2 * inside.sum() * outside.sum())) for outside, inside in _both_sides(answers)]
    return float(np.mean(ties)) if ties else None


def beyond(answers: Sequence[dict[str, Any]]) -> bool:
    """Whether more than half of the rows, in the mean of the problems, are in the outermost bands."""
    sides = [b.sum(axis=0) for b in _both_sides(answers)]
    return bool(sides) and float(np.mean([(n[0] + n[-1]) / n.sum() for n in sides])) > 0.5


def _both_sides(answers: Sequence[dict[str, Any]]) -> Iterator[np.ndarray]:
    """Of each problem in which both sides have rows the counts outside and inside the class, (2, bands); none where a
    node tells none, or in other bands than the others."""
    bands = [a["bands"] for a in answers if a and a["n"]]
    if bands and all(bands) and len({np.shape(b) for b in bands}) == 1:
        yield from (b for b in np.asarray(bands, dtype=np.float64).sum(axis=0) if b.sum(axis=1).all())


def rounds_to_target(accuracies: Sequence[float | None], rounds: Sequence[float], target: float) -> float | None:
    """McMahan's count: the best accuracy so far, linear between rounds, read where it crosses; None if it does not."""
    best: float = 0.0
    previous: float | None = None
    for t, accuracy in zip(rounds, accuracies, strict=True):
        if accuracy is None:
            continue
        if accuracy >= target:
            return t if previous is None else previous + (t - previous) * (target - best) / (accuracy - best)
        best, previous = max(best, accuracy), t
    return None
