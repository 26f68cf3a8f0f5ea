"""Attacks by thresholds: two answers whose rows differ by one row differ by that row.

Whoever can ask for a sum over the rows above a threshold, and chooses the threshold, isolates row by row. Many answers
hold such a sum: a gradient of a crafted model, a covariance with an indicator, a mean of a clipped column, a loss.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from benchmarks.attacks.researcher import TOLERANCE, Outcome, Refused, Researcher
from v6_federated.data.aggregates import edges
from v6_federated.messages import codec
from v6_federated.models import metrics

STEEP = 1e6  # how steep a crafted model is: its threshold is this sharp
LONG = 1e9  # a learning rate so large that the weights sent vanish beside the gradient
FAR = 25.0  # standard deviations beyond which no row lies


class Sum(NamedTuple):
    """How many rows, and the sum (d,) of what is asked of each."""

    count: float
    total: np.ndarray

    def __sub__(self, other: "Sum") -> "Sum":
        return Sum(self.count - other.count, self.total - other.total)

    @property
    def n(self) -> int:
        return round(self.count)


class Between(NamedTuple):
    """Two thresholds and the sum over the rows between them."""

    low: float
    high: float
    rows: Sum


Ask = Callable[[Sequence[float]], Sequence[Sum | None]]  # sums over the rows above thresholds; None: refused
Project = Callable[[np.ndarray], float]  # the number of a row (d,) that is compared with the thresholds


def isolate(
    ask: Ask, starts: Sequence[float], project: Project | None = None, a_task: int = 1, most: int = 10**6
) -> list[Between]:
    """Part the rows until each is alone between two thresholds.

    The mean of the rows between two thresholds lies among them, so a threshold there always parts them. If the sums do
    not hold what the thresholds are compared with, intervals are halved.

    Args:
        ask: asks a node for the sums above some thresholds.
        starts: the first thresholds, ascending.
        project: the number of a row that is compared with the thresholds, if the sums tell it.
        a_task: how many thresholds one task can have.
        most: stop after so many thresholds.

    Returns:
        The intervals with one row.
    """
    known = {t: above for t, above in _asked(ask, starts, a_task).items() if above is not None}
    waiting = [(Between(a, b, known[a] - known[b]), known[a], 0) for a, b in pairwise(sorted(known))]
    alone, asked = list[Between](), len(starts)
    while waiting:
        wanted = list[tuple[float, Between, Sum, int]]()
        for between, above, tries in waiting:
            if between.rows.n == 1:
                alone.append(between)
            elif between.rows.n > 1 and tries < (4 if project else 12):
                wanted.append((_middle(between, project, tries), between, above, tries))
        wanted = wanted[: max(most - asked, 0)]
        answers = _asked(ask, [t for t, *_ in wanted], a_task)
        asked += len(wanted)
        waiting = []
        for t, (a, b, rows), above, tries in wanted:
            if (middle := answers.get(t)) is None:
                continue
            parted = 0 < (above - middle).n < rows.n
            tries = 0 if parted else tries + 1
            waiting += [
                (Between(a, t, above - middle), above, tries),
                (Between(t, b, rows - (above - middle)), middle, tries),
            ]
    return alone


def _asked(ask: Ask, thresholds: Sequence[float], a_task: int) -> dict[float, Sum | None]:
    found = dict[float, Sum | None]()
    for i in range(0, len(thresholds), a_task):
        part = thresholds[i : i + a_task]
        try:
            found |= dict(zip(part, ask(part), strict=True))
        except Refused:
            found |= dict.fromkeys(part)
    return found


def _middle(between: Between, project: Project | None, tries: int) -> float:
    a, b, rows = between
    if project is not None and not tries and a < (mean := project(rows.total / rows.n)) < b:
        return mean
    return a + (b - a) * (0.5 if project is None else (0.5, 0.5, 0.31, 0.73)[tries])


# ---- rows by gradients of crafted linear models


@dataclass
class Standard:
    """The target's columns in standard deviations from their means, and a direction along which rows are compared."""

    mean: np.ndarray
    scale: np.ndarray
    n: int
    direction: np.ndarray

    @classmethod
    def of(cls, researcher: Researcher) -> "Standard":
        mean, deviation, n = researcher.moments()
        direction = np.random.default_rng(7).normal(size=len(mean))
        return cls(mean, deviation, n, direction / np.linalg.norm(direction))

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [standardize(self.mean, self.scale)]

    def project(self, row: np.ndarray) -> float:
        return float(row @ self.direction)

    def raw(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [row * self.scale + self.mean for row in rows]


def standardize(mean: np.ndarray, scale: np.ndarray) -> dict[str, Any]:
    """A step that centres and divides the columns by any numbers, as if a job had fitted it."""
    fitted = codec.encode({**codec.two_parts("mean", mean), "scale": scale}, "float64")
    return {"step": "standardize", "fitted": fitted}


def clip(bounds: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    """A step that clips columns to any bounds, as if a job had fitted it."""
    return {"step": "clip", "fitted": {"bounds": {c: list(b) for c, b in bounds.items()}}}


def components(C: np.ndarray) -> dict[str, Any]:
    """A step ``pca`` with any components (k, d), as if a job had fitted it."""
    d = C.shape[1]
    fitted = {"mean": np.zeros(d), "mean_rest": np.zeros(d), "scale": np.ones(d), "components": C}
    return {"step": "pca", "fitted": codec.encode(fitted, "float64")}


def two_classes(researcher: Researcher, package: str = "v6_fedavg", function: str = "client_update") -> Outcome:
    """One threshold a task: an svm of the two real classes, of which a full batch takes one long step.

    Rows of class 1 below the threshold and rows of class 0 above it have an error. When the threshold passes a row, the
    sum of their slopes changes by that row, whatever its class.
    """
    p = Standard.of(researcher)
    settings: dict[str, Any] = {} if function == "gradient" else {"local": {"lr": LONG}}

    def ask(thresholds: Sequence[float]) -> list[Sum]:
        answer = researcher.ask(
            package,
            function,
            data={"preprocess": p.steps},
            model={"name": "svm"},
            arrays={"weights": np.append(STEEP * p.direction, -STEEP * thresholds[0])},
            **settings,
        )
        sent = answer["gradient"] if function == "gradient" else -answer["weights"] / LONG
        g = p.n * sent.astype(np.float64)
        return [Sum(g[-1], g[:-1])]

    found = isolate(ask, [-FAR, FAR], p.project)
    return researcher.found(p.raw([b.rows.total for b in found]))


def fsvrg(researcher: Researcher) -> Outcome:
    """The same by FSVRG's full gradient, which no step hides."""
    return two_classes(researcher, "v6_fsvrg", "gradient")


def invented_classes(researcher: Researcher) -> Outcome:
    """98 thresholds a task: each invented class is a problem of its own, in which the rows above a threshold err."""
    p, invented = Standard.of(researcher), 98
    classes = [0, 1, *range(1000, 1000 + invented)]
    d, c = len(p.direction), len(classes)

    def ask(thresholds: Sequence[float]) -> list[Sum]:
        coef, intercept = np.zeros((c, d)), np.full(c, -STEEP)
        used = slice(2, 2 + len(thresholds))
        coef[used], intercept[used] = STEEP * p.direction, -STEEP * np.asarray(thresholds)
        answer = researcher.ask(
            "v6_fedavg",
            "client_update",
            data={"preprocess": p.steps, "classes": classes},
            model={"name": "svm"},
            arrays={"weights": np.append(coef, intercept)},
            local={"lr": LONG},
        )
        g = -p.n * answer["weights"].astype(np.float64) / LONG
        return [Sum(*each) for each in zip(g[c * d :][used], g[: c * d].reshape(c, d)[used], strict=True)]

    starts = [-FAR, *np.linspace(-3, 3, invented - 2), FAR]
    found = isolate(ask, starts, p.project, invented)
    return researcher.found(p.raw([b.rows.total for b in found]))


# ---- rows and values by statistics


def indicator(researcher: Researcher) -> Outcome:
    """Clip a column to two values and ask for its covariances: sums over the rows above a threshold."""
    mean, scale, n = researcher.moments()
    k, d = researcher.finest(), len(researcher.features)
    sharp = 1e-9 * scale[k]

    def ask(thresholds: Sequence[float]) -> list[Sum]:
        (t,) = thresholds
        centre, divisor = mean.copy(), scale.copy()
        centre[k], divisor[k] = t, sharp
        steps = [clip({researcher.features[k]: [t, t + sharp]})]
        A = _covariance(researcher, steps, centre, divisor)
        return [Sum(A[k, k], A[k])]

    rows = [_with_own(researcher, b, b.rows.total * scale + mean, k, n) for b in isolate(ask, _grid(mean[k], scale[k]))]
    return researcher.found(rows)


def two_clips(researcher: Researcher) -> Outcome:
    """Two copies of a column, clipped at bounds that differ a little, and their covariances.

    Neither copy has only two values, but their difference has: 0 below the threshold, and one number above. A step
    ``pca`` whose components are single columns makes the copies. They take two places, so the other columns are asked
    for in two halves.
    """
    mean, scale, n = researcher.moments()
    k, d = researcher.finest(), len(researcher.features)
    others, little = [i for i in range(d) if i != k], 1e-4

    def asking(half: Sequence[int]) -> Ask:
        columns = [k, k, *half]
        copies = components(np.eye(d)[columns])

        def ask(thresholds: Sequence[float]) -> list[Sum]:
            (t,) = thresholds
            steps = [copies, clip({"pc1": [None, t], "pc2": [None, t + little * scale[k]]})]
            centre = mean[columns]
            centre[:2] = t - scale[k]  # so that a row above is at 1 in the first copy, at 1 + little in the second
            A = _covariance(researcher, steps, centre, scale[columns])
            return [Sum((A[1, 1] - A[0, 0]) / (2 * little + little**2), (A[1, 2:] - A[0, 2:]) / little)]

        return ask

    alone = isolate(asking(others[::2]), _grid(mean[k], scale[k]))
    ends = _asked(asking(others[1::2]), sorted({t for b in alone for t in (b.low, b.high)}), 1)
    rows = list[np.ndarray]()
    for b in alone:
        below, above = ends[b.low], ends[b.high]
        if below is not None and above is not None:
            row = np.zeros(d)
            row[others[::2]], row[others[1::2]] = b.rows.total, (below - above).total
            rows.append(_with_own(researcher, b, row * scale + mean, k, n))
    return researcher.found(rows)


def _covariance(researcher: Researcher, steps: Sequence[Any], centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    answer = researcher.ask(
        "v6_fedavg",
        "fit_step",
        data={"preprocess": list(steps)},
        statistic="covariance",
        arrays={"mean": centre, "scale": scale},
    )
    A = np.zeros((len(centre), len(centre)))
    A[np.triu_indices(len(centre))] = answer["covariance"]
    return A + np.triu(A, 1).T


def _grid(mean: float, scale: float) -> list[float]:
    """Thresholds at which to begin; those beyond most rows may be refused."""
    return [mean + s * scale for s in np.linspace(-3, 3, 25)]


def _with_own(researcher: Researcher, b: Between, row: np.ndarray, k: int, n: int) -> np.ndarray:
    """A row whose column k was clipped, with its value there: from the mean of that column clipped to its interval."""
    row[k] = (b.low + b.high) / 2
    width = b.high - b.low
    try:
        steps = [clip({researcher.features[k]: [b.low, b.high]})]
        answer = researcher.ask("v6_fedavg", "fit_step", data={"preprocess": steps}, statistic="moments")
        row[k] = b.low + (n * (codec.whole(answer.arrays, "mean")[k] - b.low)) % width  # rows above count whole widths
    except Refused:
        pass
    return row


def clip_and_mean(researcher: Researcher) -> Outcome:
    """Means of a column clipped from above: between two bounds, they grow by the number of rows above.

    A step ``pca`` makes as many copies of the column as there are columns, so a task has many bounds.
    """
    mean, scale, n = researcher.moments()
    k, d = researcher.finest(), len(researcher.features)
    copies = components(np.eye(d)[[k] * d])
    little = 1e-6 * scale[k]

    def ask(thresholds: Sequence[float]) -> list[Sum]:
        bounds = [b for t in thresholds for b in (t, t + little)]
        bounds += [bounds[-1]] * (d - len(bounds))
        steps = [copies, clip({f"pc{i}": [None, b] for i, b in enumerate(bounds, start=1)})]
        answer = researcher.ask("v6_fedavg", "fit_step", data={"preprocess": steps}, statistic="moments")
        sums = n * codec.whole(answer.arrays, "mean")
        found = list[Sum]()
        for t, at, after in zip(thresholds, sums[::2], sums[1::2], strict=False):
            above = round((after - at) / little)
            found.append(Sum(above, np.array([n * mean[k] - at + t * above])))  # all values less those below
        return found

    alone = isolate(ask, _grid(mean[k], scale[k]), lambda row: float(row[0]), d // 2)
    return researcher.found_values({researcher.features[k]: [float(b.rows.total[0]) for b in alone]})


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


# ---- values by single numbers: a distance, a loss, a count


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

    starts, most = _grid(mean[k], scale[k]), 10**6
    if is_rounded(sent(mean[k], 0.0, LONG)):  # each threshold costs many tasks: only large values are looked for
        places = np.linspace(2, 3.5, 4) if researcher.small else np.linspace(2, 4, 11)
        starts = [mean[k] + place * scale[k] for place in places]
        most = len(starts) if researcher.small else 14
    alone = isolate(ask, starts, lambda row: float(row[0]) * scale[k] + mean[k], most=most)
    return researcher.found_values({column: [float(b.rows.total[0]) * scale[k] + mean[k] for b in alone]})


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

    def loss(x: float, a: float) -> float:
        tree = [[0, x + narrow, 0], [0, x - narrow, 0], [-1, 0, 0], [-1, a, 0], [-1, 0, 0]]
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
        a, b, at_a, at_b = size, -size, loss(x, size), loss(x, -size)
        if is_rounded(at_a):  # beyond 4 the error grows with the output, whatever the label
            a, at_a = where_it_jumps(lambda a: loss(x, a), 4 * size, 16 * size, 1e-8)
            b, at_b = where_it_jumps(lambda a: loss(x, -a), 4 * size, 16 * size, 1e-8)
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

    With one feature as score, moved so that a guess is at zero, the bands tell the distance of each value from the guess
    to a tenth. Guess again in a band that has rows. If counts are rounded, they jump at some of the values.
    """
    mean, scale, _ = researcher.moments()
    k = researcher.finest()
    column = researcher.features[k]

    def bands(centre: float) -> tuple[np.ndarray, np.ndarray]:
        """Lower edges of the bands that hold rows, in the column's units, and their counts."""
        answer = researcher.ask(
            "v6_fedavg",
            "evaluate",
            evaluate="all",
            data={"features": [column], "preprocess": [standardize(np.array([centre]), scale[[k]])]},
            model={"name": "logreg"},
            arrays={"weights": np.array([1.0, 0.0])},
        )
        if not answer.values["evaluation"]["bands"]:
            return np.empty((0, 2)), np.empty(0)
        sides = [metrics.unpacked(side) for side in answer.values["evaluation"]["bands"][0]]
        counts = np.sum(sides, axis=0)
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
