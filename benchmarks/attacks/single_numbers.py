"""Attacks by single numbers: a distance, a loss, a count. If they are rounded, the place where they jump tells more."""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.attacks.isolation import LONG, STEEP, Sum, grid, isolate, standardize
from benchmarks.attacks.researcher import TOLERANCE, Outcome, Refused, Researcher
from v6_federated.data.statistics import edges
from v6_federated.messages import codec
from v6_federated.models import metrics


def is_rounded(value: float) -> bool:
    """Whether a number is a multiple of a power of two that is no small part of it."""
    return math.frexp(value)[0] * 2**12 % 1 == 0


def where_it_jumps(measure: Callable[[float], float], low: float, high: float, precision: float) -> tuple[float, float]:
    """Where a rounded measure, which grows from ``low`` to ``high``, first jumps, and its exact value there."""
    first, last = measure(low), measure(high)
    while high - low > precision * high:
        middle = (low + high) / 2
        found = measure(middle)
        if found > first:
            high, last = middle, found
        else:
            low = middle
    return (low + high) / 2, (first + last) / 2


def distance(researcher: Researcher) -> Outcome:
    """Dynamic averaging: a node that has not moved far sends only its distance from the reference.

    With one feature x, the gradient of an svm is (S + B, C): S the sum of x and C the number of rows over the errors,
    with signs, and B what the model's penalty adds, so large that S + B is positive. The distance is lr times the
    gradient's length. Moved by a, the feature's sum is S + a C: two distances tell S and C. As in ``two_classes``, a
    row that the threshold passes changes S by its value and C by 1.
    """
    mean, scale, n = researcher.moments()
    k = researcher.finest()
    column, penalty = researcher.features[k], 10.0
    counts = np.arange(-n, n + 1)

    def sent(t: float, a: float, lr: float) -> float:
        answer = researcher.ask(
            "v6_dynavg",
            "local_update",
            data={"features": [column], "preprocess": [standardize(mean[[k]] - a * scale[k], scale[[k]])]},
            model={"name": "svm", "l2": penalty / STEEP},
            arrays={"weights": np.array([STEEP, -STEEP * ((t - mean[k]) / scale[k] + a)])},
            is_reference=True,
            delta=1e30,
            local={"lr": lr},
        )
        return float(answer.values["from_reference"])

    def length(t: float, a: float) -> float:
        if not is_rounded(found := sent(t, a, LONG)):
            return n * found / LONG
        lr, jump = where_it_jumps(lambda lr: sent(t, a, lr), LONG, 2 * LONG, 1e-7)
        return n * jump / lr

    def ask(thresholds: Sequence[float]) -> list[Sum]:
        (t,) = thresholds
        first, second = length(t, 0.0), length(t, 10.0)
        with np.errstate(invalid="ignore"):
            S_B = np.sqrt(first**2 - counts**2)
            best = int(np.nanargmin(np.abs(np.hypot(S_B + 10 * counts, counts) - second)))
        return [Sum(int(counts[best]), np.array([S_B[best] - penalty * n]))]

    starts, most = grid(mean[k], scale[k]), 10**6
    if is_rounded(sent(mean[k], 0.0, LONG)):  # each threshold costs many tasks: only large values are looked for
        places = np.linspace(2, 3.5, 4) if researcher.small else np.linspace(2, 4, 11)
        starts = [mean[k] + place * scale[k] for place in places]
        most = len(starts) if researcher.small else 14
    alone = isolate(ask, starts, lambda row: float(row[0]) * scale[k] + mean[k], most=most)
    return researcher.found_values({column: [float(b.rows.total[0]) * scale[k] + mean[k] for b in alone]})


def regression_loss(researcher: Researcher) -> Outcome:
    """A known person's value in any column, which is the label of a regression.

    A tree predicts a for the person alone, who is known by another column, and 0 for all others. The mean squared error
    is A + (a^2 - 2 a y) / n, y what is looked for: the errors for two outputs tell it. If the error is rounded, a is
    grown until it jumps.
    """
    mean, scale, n = researcher.moments()
    features, k, people = researcher.features, researcher.finest(), 2 if researcher.small else 10
    by = max((i for i in range(len(mean)) if i != k), key=lambda i: len(np.unique(researcher.truth[:, i])))
    values, counts = np.unique(researcher.truth[:, by], return_counts=True)
    known = np.random.default_rng(0).permutation(values[counts == 1])[:people]
    size, narrow = float(np.hypot(mean[k], scale[k])), 1e-5 * scale[by]

    def loss(x: float, a: float, sign: int = 1) -> float:
        tree = [[0, x + narrow, 0], [0, x - narrow, 0], [-1, 0, 0], [-1, sign * a, 0], [-1, 0, 0]]
        data = {"label": features[k], "features": [features[by]], "classes": None, "regression": True}
        answer = researcher.ask(
            "v6_gbdt",
            "evaluate",
            evaluate="all",
            data=data,
            model={"name": "trees"},
            arrays={"weights": np.array(tree)},
        )
        return float(answer.values["evaluation"]["loss"])

    found = list[float]()
    truth = list[float]()
    for x in known:
        a, b, at_a, at_b = size, size, loss(x, size), loss(x, -size)
        if is_rounded(at_a):  # far from all labels, the error grows with the output
            a, at_a = where_it_jumps(functools.partial(loss, x), 4 * size, 16 * size, 1e-8)
            b, at_b = where_it_jumps(functools.partial(loss, x, sign=-1), 4 * size, 16 * size, 1e-8)
        b = -b
        found.append((a * a - b * b - n * (at_a - at_b)) / (2 * (a - b)))
        truth.append(float(researcher.truth[researcher.truth[:, by] == x, k][0]))
    errors = np.abs(np.array(found) - truth) / scale[k]
    right = errors[errors < TOLERANCE]
    return Outcome(
        len(right),
        people,
        "values",
        researcher.tasks,
        people,
        max(right, default=None),
        researcher.last_words(len(right)),
    )


def score_bands(researcher: Researcher) -> Outcome:
    """The bands of the AUC count rows by score. Bands are narrow about the score of a row of zeros: put it anywhere.

    With one feature as score, moved so that a guess is at zero, the bands tell the distance of each value from the
    guess to a tenth. Guess again in a band that has rows. If counts are rounded, they jump at some of the values.
    """
    mean, scale, _ = researcher.moments()
    k = researcher.finest()
    column = researcher.features[k]
    held_out, name = (0.5, "scale") if researcher.epsilon else (0.0, "standardize")  # noise is in held-out counts only

    def bands(centre: float) -> tuple[np.ndarray, np.ndarray]:
        """Lower edges of the bands that hold rows, in the column's units, and their counts."""
        try:
            answer = researcher.ask(
                "v6_fedavg",
                "evaluate",
                evaluate="all",
                data={
                    "features": [column],
                    "holdout": held_out,
                    "preprocess": [standardize(np.array([centre]), scale[[k]], name)],
                },
                model={"name": "logreg"},
                arrays={"weights": np.array([1.0, 0.0])},
            )
        except Refused:
            if not researcher.spent:
                raise
            return np.empty((0, 2)), np.empty(0)
        if not answer.values["evaluation"]["bands"]:
            return np.empty((0, 2)), np.empty(0)
        sides = answer.values["evaluation"]["bands"][0]
        if researcher.epsilon:
            counts = np.rint(np.sum(sides, axis=0)).clip(0)
        else:
            counts = np.sum([metrics.unpacked(side) for side in sides], axis=0)
        half = (len(counts) - 1) // 2
        share = (np.arange(len(counts)) - half + np.array([[-0.5], [0.5]])) / half
        r = np.abs(share) / np.maximum(1 - np.abs(share), 1e-9)
        return (centre + scale[k] * np.sign(share) * r ** (1 / metrics.POWER)).T, counts

    waiting = [(mean[k] - 4 * scale[k], mean[k] + 6 * scale[k])]
    found, most = list[float](), 150 if researcher.small else 800
    before = researcher.tasks
    while waiting and researcher.tasks - before < most:
        low, high = waiting.pop()
        places, counts = bands((low + high) / 2)
        for (a, b), count in zip(places, counts, strict=True):
            a, b = max(a, low), min(b, high)
            if not count or a >= b:
                continue
            if b - a < 1e-3 * scale[k]:
                found.append((a + b) / 2)
            elif b - a < 0.9 * (high - low):
                waiting.append((a, b))
    return researcher.found_values({column: found})


def probabilities(researcher: Researcher) -> Outcome:
    """The sum of the probabilities in a bin that holds one row is that row's probability, and so its value.

    The model is steep, so that the bins between .1 and .9 are a narrow interval of the column, and is moved along it.
    """
    mean, scale, _ = researcher.moments()
    k = researcher.finest()
    column, narrow = researcher.features[k], scale[k] / 40
    places = np.arange(-0.5, 0.5, 0.1) if researcher.small else np.arange(-3, 6, 0.1)
    found = list[float]()
    for centre in mean[k] + places * scale[k]:
        answer = researcher.ask(
            "v6_fedavg",
            "evaluate",
            evaluate="all",
            last=True,
            data={"features": [column], "preprocess": [standardize(np.array([centre]), np.array([narrow]))]},
            model={"name": "logreg"},
            arrays={"weights": np.array([1.0, 0.0])},
        )
        counted = codec.decode(answer.values["details"])
        p = np.array(counted["predicted"])[np.sum(counted["counts"], axis=0) == 1]
        p = p[(p > 0.1) & (p < 0.9)]
        found += (centre + narrow * np.log(p / (1 - p))).tolist()
    return researcher.found_values({column: found})


def histogram_edges(researcher: Researcher) -> Outcome:
    """Counts up to chosen edges are rounded, and jump at some of the values: narrow the edges around each jump.

    A task asks for many columns, each with edges of its own.
    """
    mean, scale, _ = researcher.moments()
    features = researcher.features
    columns = range(0, len(features), 10 if researcher.small else 1)
    waiting = {k: [(mean[k] - 4 * scale[k], mean[k] + 6 * scale[k])] for k in columns}
    found: dict[str, list[float]] = {features[k]: [] for k in columns}
    while any(waiting.values()):
        now = {k: intervals.pop() for k, intervals in waiting.items() if intervals}
        try:
            answer = researcher.ask(
                "v6_fedavg",
                "fit_step",
                statistic="below",
                columns=[features[k] for k in now],
                arrays={
                    "lower": np.array([a for a, _ in now.values()]),
                    "upper": np.array([b for _, b in now.values()]),
                },
            )
        except Refused:
            break
        for (k, (low, high)), counts in zip(now.items(), answer["below"], strict=True):
            e = edges(low, high)
            for i in np.flatnonzero(np.diff(counts) > 0):
                if e[i + 1] - e[i] < 1e-4 * scale[k]:
                    found[features[k]].append(float(e[i] + e[i + 1]) / 2)
                else:
                    waiting[k].append((e[i], e[i + 1]))
    return researcher.found_values(found)
