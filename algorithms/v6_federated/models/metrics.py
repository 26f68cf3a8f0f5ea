"""Loss, accuracy, confusion matrix and AUC, or R squared, errors and C-index, computed from counts and sums.

No score of a row leaves a node. For the AUC, a node counts its rows by class and by band of the score. The bands are
the same at all nodes, so that central can add the counts, and rows within a band count as tied. The middle band is at
the score of a row of zeros, about which the scores of a new model lie. A score z log-odds away is in the band at
r / (1 + r) of the way to the outermost one, with r = z^(1/5): bands are narrow in the middle, and hold all scores.
Over 2,860 models of all methods in their first 10 to 30 rounds, the AUC from 255 bands differed from the exact AUC by
0.0004 in the median, by less than 0.003 for 95% of the models, and by 0.017 at most. Over 650 models of columns in
their own units, whose scores are up to 100,000 log-odds apart, it differed by 0.0014 in the median, by less than 0.026
for 95%, and by 0.12 at most. ``python -m benchmarks auc`` measures this. Fewer bands reveal less about a few rows: with
128 the errors are about twice as large, with 64 five times.

Whoever chooses the weights chooses the scores, so the counts of a few rows can describe single people. Nodes therefore
count no fewer rows than their operator's minimum.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from v6_federated.base.arrays import Array
from v6_federated.base.errors import SafeError
from v6_federated.base.text import DIVERGED
from v6_federated.data import times
from v6_federated.data.labels import LARGEST
from v6_federated.data.source import Rows
from v6_federated.masks import exact
from v6_federated.masks.exact import Exact
from v6_federated.masks.summands import LOSSES, Additive, Count, Declared, Sum
from v6_federated.messages.result import MOST_CROSSED, MOST_NOISE, MOST_ROWS, confusion_shape
from v6_federated.models import Model
from v6_federated.models.alone import alone
from v6_federated.models.linear import predicted
from v6_federated.models.outcomes import Outcome, Time
from v6_federated.noise import units
from v6_federated.rules.limits import MOST_BANDS
from v6_federated.rules.rounding import Rounding, rounded_loss, rounded_to, step_of

MOST_LOSS = 1e100
MOST_PREDICTED = 2.0**116  # its square is ``exact.MOST``, so that the sums of a hundred nodes are below 2^267
LEAST_SPREAD = 2.0**-40  # of labels, as the share of their squares that is about their mean
CHANCE = 0.25  # about by how much a share of pairs differs from chance
NUMBERS = ("loss", "first", "second")
# by the name of a model's outcome (empty: it has none): what nodes' evaluations add up, and what follows from it
SUMMED = {
    "": NUMBERS,
    "squared": (*NUMBERS, "absolute"),
    "poisson": (*NUMBERS, "absolute", "errors"),
    "cox": ("loss", "pairs", "concordant", "blur"),
}
MEASURED = {"": ("r2",), "squared": ("r2", "rmse", "mae"), "poisson": ("r2", "rmse", "mae"), "cox": ("c_index",)}
POWER = 1 / 5  # of a score's distance from the score of a row of zeros


def evaluate(
    model: Model,
    w: Any,
    rows: Rows,
    classes: int,
    bands: int,
    rounding: Rounding | None = None,
    row_by_row: bool = False,
    exactly: bool = False,
) -> dict[str, Any]:
    """Count how well a classifier does on the rows of one node.

    Args:
        model: the model.
        w: its weights (d,).
        rows: the rows to evaluate on.
        classes: number of classes, c.
        bands: number of bands for the AUC; 0 means that no scores are counted.
        rounding: how the node rounds counts and the loss; None means that neither is rounded.
        row_by_row: whether idle rows, and those whose score is not finite, are not counted, and have no influence on
            how the others are.
        exactly: whether the answer is a part of a sum: the loss is then an exact sum over rows, if the model has such.

    Returns:
        ``n``: number of rows. ``loss``: their mean loss. ``confusion``: counts (c, c), true class by predicted class,
        or only those predicted rightly and wrongly, see ``confusion_shape``. ``bands``: for one problem (class 1) if
        there are two classes, and for one problem a class if there are more, the counts (2, bands) of the rows outside
        and inside the class by band, each packed as ``packed`` does; empty if ``bands`` is 0, or if there are more than
        ``MOST_CROSSED`` classes. ``step``: what counts are multiples of, if they are rounded.

    Raises:
        SafeError: a score is not finite.
    """
    if row_by_row:
        scores = model.scores(w, rows.X)
        finite = np.isfinite(scores).all(axis=1) & (True if rows.idle is None else ~rows.idle)
        rows, scores = Rows(rows.X[finite], rows.y[finite]), scores[finite]
        if not len(rows):
            return {"n": 0}
    else:
        scores = _finite_scores(model, w, rows.X, exactly)
    confusion = confusion_of(rows.y, predicted(scores), classes)
    loss: Any = model.loss(scores, rows.y)
    if rounding:
        confusion, loss = rounding.confusion(confusion), rounding.loss(loss, len(rows))
    if exactly and (by_row := alone(model)) is not None:
        loss = exact.sums(by_row.losses(scores, rows.y))
    answer: dict[str, Any] = {"n": len(rows), "loss": loss, "confusion": confusion.tolist(), "bands": []}
    if rounding:
        answer["step"] = rounding.step
    if bands and problems(classes):
        center = log_odds(_finite_scores(model, w, np.zeros((1, rows.X.shape[1]), rows.X.dtype)))
        band = _band(log_odds(scores) - center, bands)
        for column, positive in enumerate([1] if classes == 2 else range(classes)):
            inside = rows.y == positive
            counts = np.bincount(band[:, column] + bands * inside, minlength=2 * bands)
            counts = rounding.counts(counts) if rounding else counts
            answer["bands"].append([packed(side) for side in counts.reshape(2, bands).tolist()])
    return answer


def confusion_of(y: Array, guess: Array, classes: int) -> Array:
    """Count rows by true and predicted class.

    Args:
        y: true classes (n,).
        guess: predicted classes (n,).
        classes: number of classes.

    Returns:
        Counts, int64, of the shape ``confusion_shape(classes)``. The first diagonal has those predicted rightly.
    """
    shape = confusion_shape(classes)
    cells = y * classes + guess if classes <= MOST_CROSSED else y != guess
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape)


def problems(classes: int) -> int:
    """Count the problems of one class against the rest for which scores are counted: none of very many classes."""
    return 1 if classes == 2 else classes if classes <= MOST_CROSSED else 0


def summands(
    classes: int,
    bands: int,
    loss: str,
    regression: bool,
    noisy: bool,
    counts_of: Additive = "hospital",
    scores_of: Additive = "row",
) -> Declared:
    """Declare what an evaluation is a sum of: what ``to_sums`` and ``regression_to_sums`` return.

    Args:
        classes: number of classes c.
        bands: number of bands of which the sum has counts; 0 for none.
        loss: the name of the model's outcome; empty if it has none.
        regression: whether the label is a number.
        noisy: whether nodes add noise, which covers no loss.
        counts_of: what counts are additive in, which nodes round themselves outside a study.
        scores_of: what losses are additive in.

    Returns:
        The declaration. Labels, and so the sums of a regression, have any size.
    """
    if regression:  # a part of the likelihood and pairs of rows are a hospital's own
        additive: Additive = "hospital" if loss == "cox" else scores_of
        return {"n": Count(), **{name: Sum(additive=additive) for name in SUMMED[loss]}}
    counts: Declared = {
        "n": Count(),
        "confusion": Count(confusion_shape(classes), counts_of),
        "bands": Count((problems(classes), 2, bands), counts_of),
    }
    return counts if noisy else {**counts, "loss": Sum((), scores_of, LOSSES), "steps": Count(additive=counts_of)}


def to_sums(evaluation: Mapping[str, Any], classes: int, bands: int) -> dict[str, Any]:
    """Turn what ``evaluate`` returned into numbers that can be added to those of other nodes.

    Args:
        evaluation: a node's evaluation.
        classes: number of classes c.
        bands: number of bands of which the sum has counts: the node's, or 0 for none.

    Returns:
        ``n``; ``loss``, the sum over the rows; ``confusion``; ``bands`` (problems, 2, bands), zeros if there are
        no rows; ``steps``, the node's part of the variance of rounded counts, times 6.
    """
    n = evaluation["n"]
    counted = n and bands and evaluation["bands"]
    return {
        "n": n,
        "loss": _summed(evaluation, "loss") if n else 0.0,
        "confusion": np.array(evaluation["confusion"] if n else np.zeros(confusion_shape(classes)), np.int64),
        "bands": _unpacked(evaluation["bands"]) if counted else np.zeros((problems(classes), 2, bands), np.int64),
        "steps": evaluation.get("step", 1) ** 2 - 1 if n else 0,
    }


def of_sums(sums: Mapping[str, Any], rounding: Rounding | None = None) -> dict[str, Any]:
    """Turn sums of what ``to_sums`` returned into the form of one node's evaluation.

    Args:
        sums: the sums over the nodes of a block.
        rounding: how counts of the block are rounded, whose nodes have not rounded theirs; None: not at all.

    Returns:
        An evaluation of all their rows, without bands if the nodes have counted none.
    """
    n, bands, confusion = int(sums["n"]), np.asarray(sums["bands"]), np.asarray(sums["confusion"])
    if not n:
        return {"n": 0}
    whole = bands.size and (bands.sum(axis=(1, 2)) == n).all()
    if rounding:
        confusion = rounding.confusion(confusion)
    if rounding and whole:
        bands = np.array([rounding.counts(problem.ravel()) for problem in bands], np.int64).reshape(bands.shape)
    return {
        "n": n,
        "loss": float(sums["loss"]) / n,
        "confusion": confusion.tolist(),
        "bands": [[packed(side) for side in problem] for problem in bands.tolist()] if whole else [],
        "steps": int(sums["steps"]) + (rounding.step**2 - 1 if rounding else 0),
    }


def reach(problems: int) -> float:
    """Bound how far one row can move the counts of an evaluation: it is in one cell, and in one band of each problem.

    Args:
        problems: that bands are counted for.

    Returns:
        The L2 norm of the change.
    """
    return math.sqrt(1 + problems)


def of_noisy_sums(sums: Mapping[str, Any], sigma: float) -> dict[str, Any]:
    """Turn sums of counts with noise into the form of one node's evaluation.

    Args:
        sums: ``n``, the rows, and the noisy ``confusion`` and ``bands`` in units of a row divided by ``units.COUNT``.
        sigma: standard deviation of the noise of a count, in rows.

    Returns:
        An evaluation without a loss. Counts can be below 0, and are not whole.
    """
    if not (n := int(sums["n"])):
        return {"n": 0}
    confusion, bands = (np.asarray(sums[name]) / units.COUNT for name in ("confusion", "bands"))
    return {
        "n": n,
        "loss": None,
        "confusion": confusion.round(1).tolist(),
        "bands": bands.tolist(),
        "sigma": sigma,
        "steps": 6 * len(confusion) * sigma**2,
    }


def evaluate_regression(
    model: Model,
    w: Any,
    rows: Rows,
    rounding: bool = False,
    least_events: int = 0,
    exactly: bool = False,
) -> dict[str, Any]:
    """Compute how well a model of numbers does on the rows of one node.

    Args:
        model: the model.
        w: its weights (d,).
        rows: the rows to evaluate on; their labels are numbers.
        rounding: whether all results are rounded to about their standard errors. Predictions of a model with an
            outcome are then moved within its reach, so that one row cannot outweigh all others.
        least_events: with fewer events, times are not evaluated.
        exactly: whether the answer is a part of a sum: in place of means and squares are then exact sums over rows, if
            the model has such, with ``first`` and ``second``, of labels and of their squares.

    Returns:
        ``n``: number of rows. ``loss``: mean squared error, or the mean loss of the model's outcome. ``mean``: mean of
        the labels. ``squares``: sum of the squared differences of the labels from that mean. If the model has an
        outcome, ``absolute``, the mean absolute error, and of counts ``errors``, the mean squared error. Of times in
        place of all of these but the first two, ``pairs`` and ``concordant``, see ``times.concordance``, and ``blur``,
        the variance of the latter by rounding.

    Raises:
        SafeError: a prediction is not finite, or beyond ``MOST_PREDICTED``.
    """
    outcome: Outcome | None = getattr(model, "outcome", None)
    predictions = _finite_scores(model, w, rows.X, exactly and not isinstance(outcome, Time))
    if outcome is not None and rounding:
        predictions = outcome.within_reach(predictions, rows.y)
    if not (np.abs(predictions) < MOST_PREDICTED).all():  # whether a sum is too large would tell of all rows of a node
        raise SafeError(f"a row's prediction is too large to be squared and added; {DIVERGED}")
    if isinstance(outcome, Time):
        return _evaluate_times(predictions[:, 0], rows.y, rounding, least_events)
    if exactly and (by_row := alone(model)) is not None:
        sums = {"loss": by_row.losses(predictions, rows.y), "first": rows.y, "second": np.square(rows.y)}
        if outcome is not None:
            sums["absolute"] = np.abs(predictions[:, 0] - rows.y)
            sums |= {"errors": np.square(predictions[:, 0] - rows.y)} if outcome.name == "poisson" else {}
        return {"n": len(rows), **{name: exact.sums(each) for name, each in sums.items()}}
    mean = float(rows.y.mean())
    squares = float(np.sum((rows.y - mean) ** 2))
    n, loss, variance = len(rows), model.loss(predictions, rows.y), squares / len(rows)
    more: dict[str, float] = {}
    if outcome is not None:
        apart = predictions[:, 0] - rows.y
        more["absolute"] = float(np.abs(apart).mean())
        if outcome.name == "poisson":
            more["errors"] = float(np.square(apart).mean())
    if rounding and squares:
        unit = variance
        if outcome is not None and outcome.name == "poisson":
            unit = float(outcome.losses(np.full(n, mean), rows.y).mean())
        loss, squares = rounded_loss(loss, n, unit), n * rounded_loss(variance, n, variance)
        mean = rounded_to(mean, math.sqrt(variance), n)
        units = {"absolute": math.sqrt(variance), "errors": variance}
        more = {name: rounded_loss(value, n, units[name]) for name, value in more.items()}
    return {"n": n, "loss": loss, "mean": mean, "squares": squares, **more}


def _evaluate_times(eta: Array, y: Array, rounding: bool, least_events: int) -> dict[str, Any]:
    """Partial likelihood and concordance of the rows of one node, from log hazard ratios and labels (n,)."""
    time, event = times.parted(y)
    if event.sum() < least_events:
        return {"n": 0}
    n, loss = len(y), float(Time().losses(eta, y).mean())
    pairs, concordant = times.concordance(time, event, eta)
    blur = 0.0
    if rounding:
        loss = rounded_loss(loss, n)
        if pairs:
            share, pairs = rounded_to(concordant / pairs, CHANCE, n), rounded_to(pairs, pairs, n)
            concordant, blur = share * pairs, (pairs * step_of(CHANCE, n)) ** 2 / 12
    return {"n": n, "loss": loss, "pairs": pairs, "concordant": concordant, "blur": blur}


def regression_to_sums(evaluation: Mapping[str, Any], loss: str = "") -> dict[str, Any]:
    """Turn what ``evaluate_regression`` returned into numbers that can be added to those of other nodes.

    Args:
        evaluation: a node's evaluation. What is rounded in it stays so.
        loss: the name of the model's outcome; empty if it has none.

    Returns:
        ``n``, and what ``SUMMED`` names: ``first``, the sum of the labels; ``second``, that of their squares; ``loss``,
        ``absolute`` and ``errors``, sums over the rows; and what is a sum as it is.
    """
    if not (n := evaluation["n"]):
        return {"n": 0, **dict.fromkeys(SUMMED[loss], 0.0)}
    found = {name: _summed(evaluation, name) for name in ("loss", "absolute", "errors") if name in evaluation}
    found |= {name: evaluation[name] for name in ("first", "second") if name in evaluation}
    if "mean" in evaluation:
        found |= {"first": n * evaluation["mean"], "second": evaluation["squares"] + n * evaluation["mean"] ** 2}
    found |= {name: evaluation[name] for name in ("pairs", "concordant", "blur") if name in evaluation}
    return {"n": n, **found}


def _summed(evaluation: Mapping[str, Any], name: str) -> Any:
    """The sum over the rows of what an evaluation has as a mean, unless it is a sum already."""
    value = evaluation[name]
    return value if isinstance(value, Exact) else evaluation["n"] * value


def regression_of_sums(sums: Mapping[str, Any]) -> dict[str, Any]:
    """Turn sums of what ``regression_to_sums`` returned into the form of one node's evaluation.

    Args:
        sums: the sums over the nodes of a block.

    Returns:
        An evaluation of all their rows. Labels are as good as equal if they differ by a millionth of their mean.
    """
    if not (n := int(sums["n"])):
        return {"n": 0}
    found = {name: float(sums[name]) / n for name in ("loss", "absolute", "errors") if name in sums}
    if "pairs" in sums:
        return {"n": n, **found, **{name: max(float(sums[name]), 0.0) for name in ("pairs", "concordant", "blur")}}
    first, second = float(sums["first"]), float(sums["second"])
    squares = second - first**2 / n  # what is left of two numbers of 53 bits
    return {"n": n, **found, "mean": first / n, "squares": squares if squares > LEAST_SPREAD * second else 0.0}


def _finite_scores(model: Model, w: Any, X: Array, exactly: bool = False) -> Array:
    by_row = alone(model) if exactly else None
    scores = model.scores(w, X) if by_row is None else by_row.scores_alone(w, X)
    if not np.isfinite(scores).all():
        raise SafeError(f"the model's scores are not finite; {DIVERGED}")
    return scores


def log_odds(scores: Array) -> Array:
    """Compute the log-odds of each class against the rest.

    Args:
        scores: decision values (n, 1), or (n, c) of which the softmax is taken.

    Returns:
        Float64 (n, 1) for one or two columns of scores, of class 1 against class 0; (n, c) for more.
    """
    z = np.asarray(scores, dtype=np.float64)
    if z.shape[1] > 1:
        shifted = np.exp(z - z.max(axis=1, keepdims=True))
        p = shifted / shifted.sum(axis=1, keepdims=True)
        tiny = np.finfo(np.float64).tiny
        odds = np.log(np.maximum(p, tiny)) - np.log(np.maximum(1 - p, tiny))
        z = odds[:, 1:] if z.shape[1] == 2 else odds  # of two columns the second says all
    return z


def _band(z: Array, bands: int) -> Array:
    """The band 0, 1, ... of scores at distance ``z``; a distance of 0 is in the middle of a band."""
    half, r = (bands - 1) // 2, np.abs(z) ** POWER
    return half + np.rint(half * np.sign(z) * r / (1 + r)).astype(np.int64)


def packed(counts: Sequence[int]) -> list[int]:
    """Write counts in few bytes: most bands are empty.

    Args:
        counts: counts of rows.

    Returns:
        The same, with each run of zeros replaced by the negative number of these zeros.
    """
    runs = ((count, [*run]) for count, run in itertools.groupby(counts))
    return [number for count, run in runs for number in (run if count else [-len(run)])]


def unpacked(numbers: Sequence[int]) -> Array:
    """Read what ``packed`` returned.

    Args:
        numbers: packed counts.

    Returns:
        The counts (bands,), int64.

    Raises:
        ValueError: these are not packed counts of at most ``MOST_BANDS`` bands.
    """
    p = np.asarray(numbers)
    if p.ndim != 1 or p.dtype.kind != "i" or len(p) > MOST_BANDS or (p < -MOST_BANDS).any():
        raise ValueError
    lengths = np.where(p < 0, -p, 1)
    if lengths.sum() > MOST_BANDS:
        raise ValueError
    return np.repeat(np.maximum(p, 0), lengths)


def _unpacked(bands: Any) -> Array:
    """Counts (problems, 2, bands)."""
    return np.array([[unpacked(side) for side in problem] for problem in bands], np.int64)


def is_loss(value: Any) -> bool:
    """Whether a value can be a mean or a sum of losses: a number from 0, so small that such numbers can be added."""
    return type(value) in (int, float) and 0 <= value < MOST_LOSS


def is_evaluation(answer: Any, classes: int | None, loss: str = "") -> bool:
    """Whether a node's answer has the form that ``evaluate`` returns.

    Args:
        answer: what the node sent.
        classes: number of classes; None means that the answer must have the form of ``evaluate_regression``.
        loss: the name of the model's outcome; empty if it has none.

    Returns:
        Whether all numbers are there, in range, and counts add up to the number of rows.
    """
    if not isinstance(answer, dict) or type(answer.get("n")) is not int or not 0 <= answer["n"] < MOST_ROWS:
        return False
    if not answer["n"]:
        return True
    try:
        if not is_loss(answer["loss"]):
            return False
        if classes is None:
            sums = [name for name in ("absolute", "errors", "pairs", "blur") if name in (*SUMMED[loss],)]
            if not all(is_loss(answer[name]) for name in sums):
                return False
            if loss == "cox":
                return is_loss(answer["concordant"]) and answer["concordant"] <= answer["pairs"] <= 2 * answer["n"] ** 2
            mean = answer["mean"]
            return type(mean) is float and abs(mean) <= LARGEST and is_loss(answer["squares"])
        confusion = np.asarray(answer["confusion"])
        bands = [_unpacked(answer["bands"])] if answer["bands"] else []
        if not (type(answer.get("step", 1)) is int and 1 <= answer.get("step", 1) < MOST_ROWS):
            return False
        # no count is above n, so sums do not overflow; each row is counted once, and once in the bands of a problem
        n, each = answer["n"], [confusion, *(problem for b in bands for problem in b)]
        counts = all(a.dtype.kind == "i" and a.min() >= 0 and a.max() <= n and _total(a) == n for a in each)
        layout = all(b.ndim == 3 and b.shape[:2] == (problems(classes), 2) for b in bands)
        return bool(counts and layout and confusion.shape == confusion_shape(classes))
    except (KeyError, ValueError, TypeError):
        return False


def is_noisy_evaluation(answer: Any, classes: int | None, loss: str = "") -> bool:
    """Whether a node's answer has the form that ``of_noisy_sums`` returns.

    Args:
        answer: what the node sent.
        classes: number of classes.
        loss: not used.

    Returns:
        Whether all numbers are there, and finite.
    """
    if not isinstance(answer, dict) or type(answer.get("n")) is not int or not 0 <= answer["n"] < MOST_ROWS:
        return False
    if not answer["n"]:
        return True
    if classes is None:
        return False
    try:
        confusion, bands = (np.asarray(answer[name], dtype=np.float64) for name in ("confusion", "bands"))
        numbers = [*confusion.ravel(), *bands.ravel(), answer["sigma"], answer["steps"]]
        if (of := problems(classes)) == 0:
            layout = bands.shape == (0,)  # as JSON has it
        else:
            layout = bands.ndim == 3 and bands.shape[:2] == (of, 2) and bands.shape[2] <= MOST_BANDS
        layout = layout and confusion.shape == confusion_shape(classes)
        finite = all(abs(number) < MOST_ROWS for number in numbers)
        return layout and finite and answer["loss"] is None and answer["sigma"] >= 0
    except (KeyError, ValueError, TypeError):
        return False


def _total(counts: Array) -> int:
    return sum(map(int, counts.ravel()))


def combine_regression(answers: Sequence[dict[str, Any]], loss: str = "") -> dict[str, Any]:
    """Add up what several nodes computed with ``evaluate_regression``.

    Args:
        answers: the nodes' answers; empty ones, and those of no rows, do not count.
        loss: the name of the model's outcome; empty if it has none.

    Returns:
        ``evaluated``: number of rows. ``loss``: mean squared error over all rows, or the mean loss of the model's
        outcome. ``r2``: R squared, None if all labels are equal. If the model has an outcome, ``rmse`` and ``mae``, the
        root of the mean squared error and the mean absolute error. Of times, in place of these, ``c_index``: the share
        of comparable pairs of rows of the same node that the model has in the right order; and, if nodes have rounded,
        ``c_index_error``, by how much this makes it differ from the exact value, about (a standard deviation).
        ``accuracy`` and ``auc`` are None, and so is everything if there are no rows.
    """
    answers = [a for a in answers if a and a["n"]]
    none = {"loss": None, "accuracy": None, "auc": None, **dict.fromkeys(MEASURED[loss])}
    if not answers:
        return {"evaluated": 0, **none}
    n = np.array([a["n"] for a in answers])

    def over_rows(name: str) -> float:
        return float(n @ [a[name] for a in answers] / n.sum())

    found = {"evaluated": int(n.sum()), **none, "loss": over_rows("loss")}
    if loss == "cox":
        pairs, concordant, blur = (sum(a[name] for a in answers) for name in ("pairs", "concordant", "blur"))
        if pairs:
            found["c_index"] = float(np.clip(concordant / pairs, 0, 1))
        return {**found, **({"c_index_error": math.sqrt(blur) / pairs} if blur else {})}
    means = np.array([a["mean"] for a in answers])
    errors = max(over_rows("errors" if loss == "poisson" else "loss"), 0.0)  # under masks, 0 can be a little less
    total = sum(a["squares"] for a in answers) + float(n @ (means - n @ means / n.sum()) ** 2)
    found["r2"] = 1 - errors * int(n.sum()) / total if total > 0 else None
    return {**found, **({"rmse": math.sqrt(errors), "mae": over_rows("absolute")} if loss else {})}


def combine(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up what several nodes counted with ``evaluate``.

    Args:
        answers: the nodes' answers; empty ones, and those of no rows, do not count.

    Returns:
        ``evaluated``: number of rows. ``loss``: mean loss over all rows. ``accuracy``: share of rows whose class was
        predicted. ``auc``: area under the ROC curve; with more than two classes the mean over the problems one class
        against the rest; None if a node counted no bands or another number of them than the others, or if no class
        has rows on both sides. ``auc_error``: by how much the bands can make ``auc`` differ from the exact value, at
        most; rows whose scores are really tied count towards it too. ``auc_variance``: the variance of ``auc`` over
        draws of rows (DeLong et al. 1988), rows within a band tied; None with more than two classes, as counts by band
        do not show how the classes' areas vary together, and with fewer than two rows in a class. ``confusion``: counts
        (c, c), true class by predicted class. All are None if there are no rows. ``accuracy_error``: by how much the
        nodes' rounding makes ``accuracy`` differ from the exact value, about (a standard deviation); only if nodes have
        rounded.
    """
    answers = [a for a in answers if a and a["n"]]
    if not answers:
        return {"evaluated": 0, **dict.fromkeys(("loss", "accuracy", "auc", "auc_error", "auc_variance", "confusion"))}
    n, noisy = sum(a["n"] for a in answers), any(a["loss"] is None for a in answers)
    confusion = np.sum([a["confusion"] for a in answers], axis=0)
    areas, halves, variances = [], [], []
    for outside, inside in _with_noise(answers) if noisy else both_sides(answers):
        pairs = inside.sum() * outside.sum()
        areas.append(area(outside, inside))
        halves.append(float(inside @ outside / 2 / pairs))
        variances.append(None if noisy else delong(outside, inside))
    # of a node's rounding: the mean over r = 0, ..., m - 1 of r (m - r), the variance if r rows are left of m
    variance = sum(a.get("steps", a.get("step", 1) ** 2 - 1) / 6 for a in answers)
    return {
        "evaluated": n,
        "loss": None if noisy else sum(a["n"] * a["loss"] for a in answers) / n,
        **({"accuracy_error": math.sqrt(variance) / n} if variance else {}),
        "accuracy": float(np.clip(np.trace(confusion) / n, 0, 1)),
        "auc": float(np.clip(np.mean(areas), 0, 1)) if areas else None,
        "auc_error": float(np.mean(halves)) if halves else None,
        "auc_variance": variances[0] if len(confusion) == 2 and variances else None,
        "confusion": confusion.tolist(),
    }


def area(outside: Array, inside: Array) -> float:
    """Compute the AUC from counts; rows of one band count as half in the right order.

    Args:
        outside: rows outside a class by band, the lowest scores first (bands,).
        inside: rows inside it.

    Returns:
        The share of pairs of rows in the right order.
    """
    return float(inside @ (np.cumsum(outside) - outside / 2) / (inside.sum() * outside.sum()))


def delong(outside: Array, inside: Array) -> float | None:
    """Compute DeLong's variance of the AUC from counts.

    Args:
        outside: rows outside a class by band, the lowest scores first (bands,).
        inside: rows inside it.

    Returns:
        The variance; None if a class has fewer than two rows.
    """
    n0, n1 = outside.sum(), inside.sum()
    if min(n0, n1) < 2:
        return None
    below = (np.cumsum(outside) - outside / 2) / n0  # of a row inside, by band: the share of rows outside with less
    above = 1 - (np.cumsum(inside) - inside / 2) / n1  # of a row outside: the share of rows inside with more
    auc = inside @ below / n1
    return float(inside @ (below - auc) ** 2 / (n1 - 1) / n1 + outside @ (above - auc) ** 2 / (n0 - 1) / n0)


def _with_noise(answers: Sequence[dict[str, Any]]) -> Iterator[tuple[Array, Array]]:
    """Counts with noise, for each problem in which the area is known to ``MOST_NOISE``, a standard deviation."""
    variance = sum(a["sigma"] ** 2 for a in answers)
    for outside, inside in np.sum([a["bands"] for a in answers], axis=0):
        n0, n1 = outside.sum(), inside.sum()
        if n0 > 0 and n1 > 0:
            below, above = (np.cumsum(outside) - outside / 2) / n0, 1 - (np.cumsum(inside) - inside / 2) / n1
            noise = variance * (below @ below / n1**2 + above @ above / n0**2)
            if noise <= MOST_NOISE**2:
                yield outside, inside


def both_sides(answers: Sequence[dict[str, Any]]) -> Iterator[Array]:
    """Add up counts by class and band.

    Args:
        answers: evaluations of some rows.

    Yields:
        Counts (2, bands), summed over the nodes, of each problem that has rows outside and inside its class.
    """
    if not all(a["bands"] for a in answers):
        return
    bands = [_unpacked(a["bands"]) for a in answers]
    if len({b.shape for b in bands}) == 1:
        yield from (b for b in np.asarray(bands, dtype=np.float64).sum(axis=0) if b.sum(axis=1).all())
