"""Attacks by thresholds: two answers whose rows differ by one row differ by that row.

Whoever can ask for a sum over the rows above a threshold, and chooses the threshold, isolates row by row. Many answers
hold such a sum: a gradient of a crafted model, a covariance with an indicator, a mean of a clipped column.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.attacks.isolation import (
    FAR,
    LONG,
    STEEP,
    Ask,
    Between,
    Standard,
    Sum,
    asked_in_parts,
    clip,
    components,
    grid,
    isolate,
)
from benchmarks.attacks.researcher import Outcome, Refused, Researcher
from v6_federated.messages import codec

Products = Callable[[Researcher, Sequence[Any], np.ndarray, np.ndarray], np.ndarray]  # sums of products of columns

# ---- gradients of crafted linear models


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
        sizes, rows = g[c * d :][used], g[: c * d].reshape(c, d)[used]
        return [Sum(float(sizes[i]), rows[i]) for i in range(len(thresholds))]

    starts = [-FAR, *np.linspace(-3, 3, invented - 2), FAR]
    found = isolate(ask, starts, p.project, invented)
    return researcher.found(p.raw([b.rows.total for b in found]))


# ---- statistics


def indicator(researcher: Researcher) -> Outcome:
    """Clip a column to two values and ask for its covariances: sums over the rows above a threshold."""
    mean, scale, n = researcher.moments()
    k = researcher.finest()
    sharp = 1e-9 * scale[k]

    def ask(thresholds: Sequence[float]) -> list[Sum]:
        (t,) = thresholds
        centre, divisor = mean.copy(), scale.copy()
        centre[k], divisor[k] = t, sharp
        steps = [clip({researcher.features[k]: [t, t + sharp]})]
        A = _covariance(researcher, steps, centre, divisor)
        return [Sum(A[k, k], A[k])]

    rows = [
        _with_own(researcher, b, b.rows.total * scale + mean, k, n)
        for b in isolate(ask, grid(mean[k], scale[k]), most=_most(researcher))
    ]
    return researcher.found(rows)


def two_clips_hessian(researcher: Researcher) -> Outcome:
    """The same as ``two_clips`` with Hessians of a logit at coefficients of 0: a fourth of the sums of products."""
    return two_clips(researcher, _of_hessian)


def two_clips(researcher: Researcher, products: Products | None = None) -> Outcome:
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
            A = (products or _covariance)(researcher, steps, centre, scale[columns])
            return [Sum((A[1, 1] - A[0, 0]) / (2 * little + little**2), (A[1, 2:] - A[0, 2:]) / little)]

        return ask

    alone = isolate(asking(others[::2]), grid(mean[k], scale[k]), most=_most(researcher))
    ends = asked_in_parts(asking(others[1::2]), sorted({t for b in alone for t in (b.low, b.high)}), 1)
    rows = list[np.ndarray]()
    for b in alone:
        below, above = ends[b.low], ends[b.high]
        if below is not None and above is not None:
            row = np.zeros(d)
            row[others[::2]], row[others[1::2]] = b.rows.total, (below - above).total
            rows.append(_with_own(researcher, b, row * scale + mean, k, n))
    return researcher.found(rows)


def _of_hessian(researcher: Researcher, steps: Sequence[Any], centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    p = len(centre) + 1
    answer = researcher.ask(
        "v6_glm",
        "newton",
        data={"preprocess": list(steps)},
        model={"name": "glm", "family": "binomial", "link": "logit", "features": len(centre)},
        arrays={"weights": np.zeros(p), "center": np.append(centre, 0.0), "scale": np.append(scale, 1.0)},
        null=0.0,
    )
    H = np.zeros((p, p))
    H[np.tril_indices(p)] = 4 * answer["hessian"]
    return H.T[:-1, :-1]


def _most(researcher: Researcher) -> int:
    """How many thresholds to ask for."""
    return 60 if researcher.small and len(researcher.block) > 1 else 10**6


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

    alone = isolate(ask, grid(mean[k], scale[k]), lambda row: float(row[0]), d // 2)
    return researcher.found_values({researcher.features[k]: [float(b.rows.total[0]) for b in alone]})
