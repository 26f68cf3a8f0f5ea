"""Attacks on regressions and survival: what sums of Newton's method and counts by bin of time can be made to tell."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.attacks.isolation import Sum, isolate
from benchmarks.attacks.researcher import FLAG, NAME, RARE, Outcome, Refused, Researcher, matched
from v6_federated.central import checkpoint
from v6_federated.messages import codec
from v6_glm import noisy

GLM: dict[str, Any] = {"name": "glm", "family": "binomial", "link": "logit"}
PRECISE = 1e-3  # deviations of a column to which a time is bisected
SHORT = 1e-4  # the same, between two ends whose difference tells who is at risk


def hessian(researcher: Researcher, **data: Any) -> np.ndarray:
    """The sum of x x^T over rows x with a 1 at the end (p, p): four times a logit's Hessian at coefficients of 0."""
    p = len(researcher.features) + 1
    arrays = {"weights": np.zeros(p), "center": np.zeros(p), "scale": np.ones(p)}
    answer = researcher.ask("v6_glm", "newton", data=data, model=GLM, arrays=arrays, null=0.0)
    H = np.zeros((p, p))
    H[np.tril_indices(p)] = 4 * answer["hessian"]
    return H + np.tril(H, -1).T


def rare_flag_hessian(researcher: Researcher) -> Outcome:
    """A column of the table is 1 for one patient and 0 for all others: its products are this patient's values."""
    H = hessian(researcher)
    return _one(researcher.found(H[None, researcher.features.index(FLAG), :-1]))


def rare_flag_weights(researcher: Researcher) -> Outcome:
    """The column is named as the weights of rows: all sums are then about this patient alone."""
    features = [c for c in researcher.features if c != FLAG]
    p = len(features) + 1
    answer = researcher.ask(
        "v6_glm",
        "newton",
        data={"features": features, "weights": FLAG},
        model=GLM,
        arrays={"weights": np.zeros(p), "center": np.zeros(p), "scale": np.ones(p)},
        null=0.0,
    )
    last = answer["hessian"][-p:]
    claim = np.insert(last[:-1] / last[-1], researcher.features.index(FLAG), 1.0)
    return _one(researcher.found(claim[None]))


def noisy_hessian(researcher: Researcher) -> Outcome:
    """The row with the largest value of a column, from the sum with noise that ``glm`` has under a budget.

    The coefficients of a logit put all rows but those with the largest values at a weight of almost 0. The whole budget
    goes into one sum, whose bounds let this row count as much as a row can.
    """
    researcher.reserve(statistics=1)
    features = researcher.features
    p, k, half = len(features) + 1, researcher.finest(), researcher.moments()[0]
    T = np.diag(np.append(1 / half, 1.0))  # columns between -1 and 1
    T[-1, :-1] = -1.0
    steep = 40.0
    coefficients = np.zeros(p)
    largest = max(float(researcher.tables[t][features[k]].max()) for t in researcher.tables)
    coefficients[k], coefficients[-1] = steep / half[k], -steep * largest / half[k]
    answer = researcher.ask(
        "v6_glm",
        "noisy_newton",
        model=GLM,
        arrays={"coefficients": coefficients},
        transform=codec.encode({"T": T}, "float64"),
        longest=[0.5 * p**0.5, 0.25 * p],
        of_budget=1,
    )
    H = noisy.unpacked(answer["sums"][p:-p], p)
    with np.errstate(all="ignore"):
        claim = H[-1, :-1] / H[-1, -1] * half + half
    return _one(researcher.found(np.nan_to_num(claim)[None]))


# ---- times


def times_by_other_ends(researcher: Researcher) -> Outcome:
    """The end of a bin of ``km`` is bisected until it is at the time of the r-th row. Any column can be the time."""
    column, scale = _time(researcher)
    ranks = np.linspace(0.2, 0.8, 6 if researcher.small else 12)
    rows = sum(len(researcher.tables[k]) for k in researcher.block)
    count = _counts(researcher, column, scale)
    count(PRECISE * scale)  # refused if all times are
    found = []
    for rank in np.rint(ranks * rows).tolist():

        def reached(t: float, rank: float = rank) -> bool:
            try:
                return count(t) >= rank - 0.5
            except Refused:  # a single hospital says so of a time before which it has a few events
                return False

        found.append(_bisected(reached, researcher, column, scale))
    return researcher.found_values({column: found}, of=len(ranks))


def time_of_the_flagged(researcher: Researcher) -> Outcome:
    """The column that is 1 for one patient is named as the event: its bin is this patient's time."""
    column, scale = _time(researcher)
    count = _counts(researcher, column, scale, event=FLAG)
    found = _bisected(lambda t: count(t) > 0.5, researcher, column, scale)
    return _one(_value(researcher, column, found))


def time_of_a_rare_word(researcher: Researcher) -> Outcome:
    """One patient is of a village: the curve of the group of this village ends where this patient's time is."""
    column, scale = _time(researcher)
    count = _counts(researcher, column, scale, subgroup=NAME, levels=[RARE])
    found = _bisected(lambda t: count(t) > 0.5, researcher, column, scale)
    return _one(_value(researcher, column, found))


def rows_by_other_ends(researcher: Researcher) -> Outcome:
    """Two jobs of ``cox`` without strata, whose only bin ends at t and a little later: sums over rows at risk at t.

    At coefficients 0 the sums are of min(T, t) and of this times each column, T the rows' times. Their difference over
    that of the ends is the number of rows with T > t, and the sums of their columns. Ends are moved until one row lies
    between two of them, whose time follows from the sums as well.
    """
    column, scale = _time(researcher)
    features = [c for c in researcher.features if c != column]
    p, at, short = len(features), researcher.features.index(column), SHORT * scale
    until, after = dict[float, float](), dict[float, int]()

    def risk(t: float) -> np.ndarray:
        answer = researcher.ask(
            "v6_cox",
            "newton_on_grid",
            data={"label": column, "features": features, "regression": True, "classes": None},
            model={"name": "cox"},
            arrays={"weights": np.zeros(p + 1), "center": np.zeros(p + 1)},
            bins=codec.encode({"ends": np.array([t]), "hazard": np.zeros(2)}, "float64"),
            even=True,
        )
        return answer["risk"].reshape(2, p + 1)[0]

    def ask(ends: Any) -> list[Sum]:
        (t,) = ends
        first = risk(t)
        difference = (risk(t + short) - first) / short
        until[t], after[t] = float(first[0]), round(difference[0])
        return [Sum(float(difference[0]), difference)]

    mean, deviation, _ = researcher.moments()
    starts = [mean[at] + s * deviation[at] for s in np.linspace(-1.5, 2, 15)]
    most = 40 if researcher.small else 400 if len(researcher.block) == 1 else 150
    rows = []
    for b in isolate(ask, [t for t in starts if t > 0], most=most):
        # until rises by the time at risk: of those who stay between both ends, and of the one who leaves
        time = b.low + until[b.high] - until[b.low] - after[b.high] * (b.high - b.low)
        rows.append(np.insert(b.rows.total[1:], at, time))
    return researcher.found(np.array(rows).reshape(-1, len(researcher.features)))


def last_row_by_a_grid(researcher: Researcher) -> Outcome:
    """Ordinary jobs of ``cox`` without strata over all hospitals, whose last bin is moved until one event is in it.

    The result keeps the mean of the columns at risk in each bin: in the last one, that of the last patient.
    """
    column, scale = _time(researcher)
    features = [c for c in researcher.features if c != column][:3]
    mean = float(researcher.moments()[0][researcher.features.index(column)])
    low, high, claims = mean, mean + 10 * scale, list[np.ndarray]()
    while high - low > SHORT * scale and not claims:
        end = (low + high) / 2
        try:
            grid = [mean, end]
            job = researcher.central("v6_cox", label=column, features=features, rounds=2, strata="none", grid=grid)
        except Refused:
            high = end
            continue
        shared = checkpoint.from_json(job["state"])["shared"]
        events = round(shared["events"][-1])
        low, high = (end, high) if events > 1 else (low, end)
        claims += [np.array(shared["means"])[-1] + shared["center"]] * (events == 1)
    truth = np.concatenate([t[features].to_numpy(np.float64) for t in researcher.tables.values()])
    number, error = matched(np.array(claims).reshape(-1, len(features)), truth, truth.std(axis=0))
    return _one(Outcome(number, 1, "rows", researcher.tasks, len(claims), error, researcher.last_words(number)))


def _time(researcher: Researcher) -> tuple[str, float]:
    column = researcher.features[researcher.finest()]
    return column, float(researcher.moments()[1][researcher.finest()])


def _counts(researcher: Researcher, column: str, scale: float, **data: Any) -> Callable[[float], float]:
    """How many events happen up to a time, of the group that the job names, if it names one."""
    spec = {"label": None, "features": [], "classes": None, "supervised": False, "time": column, **data}

    def asked(t: float) -> tuple[float, float]:
        answer = researcher.ask("v6_km", "leaving", data=spec, ends=[t], strata="none")
        return float(answer["events"][0]), float(answer["events"].sum() + answer["censored"].sum())

    @functools.cache
    def whole() -> float:
        return asked(PRECISE * scale)[1]

    def count(t: float) -> float:
        events, rows = asked(t)
        return events + whole() - rows  # hospitals in which hardly anybody is left at risk say nothing

    return count


def _bisected(reached: Callable[[float], bool], researcher: Researcher, column: str, scale: float) -> float:
    """The time from which on something holds."""
    mean = float(researcher.moments()[0][researcher.features.index(column)])
    low, high = max(mean - 4 * scale, PRECISE * scale), mean + 6 * scale
    while high - low > PRECISE * scale:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return (low + high) / 2


def _value(researcher: Researcher, column: str, found: float) -> Outcome:
    """Whether the time of the one patient was found."""
    own = researcher.tables[1]
    [true] = own.loc[own[FLAG] == 1, column]
    right = abs(found - true) < 0.01 * own[column].std()
    return Outcome(int(right), 1, "values", researcher.tasks, 1, error=abs(found - true) / own[column].std())


def _one(found: Outcome) -> Outcome:
    return replace(found, of=1)
