"""Attacks on single hospitals of a block: their rows, means and gradients, which a sum over all must not tell.

Each looks for a place where a hospital rounds, flushes, fails or keeps something by its own total, and would find it if
one cure were left out (``tests/privacy/test_attacks_on_totals.py``).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.attacks.isolation import standardize
from benchmarks.attacks.researcher import LABEL, TARGET, Failed, Outcome, Researcher
from benchmarks.attacks.transport import Agreed
from v6_federated.masks.encoding import HEADER
from v6_federated.masks.summands import FIRST
from v6_federated.masks.summing import Sums
from v6_federated.messages import codec

FEDAVG, SCAFFOLD = "v6_fedavg", "v6_scaffold"
PLACE = 2.0**-20  # the last place of float32 at 16
FAR_CENTER = -(2.0**52)  # a number added to it is rounded to a whole one
TINY = 2.0**-1022  # smaller numbers count as 0
HOSPITALS = "hospitals"


def _known(researcher: Researcher, found: int, claimed: int, unit: str, of: int | None = None) -> Outcome:
    words = researcher.last_words(found)
    return Outcome(found, of or len(researcher.block), unit, researcher.tasks, claimed, None, words)


def right(claims: Sequence[Sequence[float]], truth: Sequence[Sequence[float]], within: Sequence[float]) -> int:
    """How many true numbers are claimed, each once."""
    left = [np.asarray(t) for t in truth]
    for claim in claims:
        near = [i for i, t in enumerate(left) if (np.abs(t - claim) <= within).all()]
        if near:
            del left[near[0]]
    return len(truth) - len(left)


def jumps(
    measure: Callable[[float], float], low: float, high: float, precision: float, least: float
) -> list[tuple[float, float]]:
    """Where a measure that is constant in between jumps by ``least`` or more, and by how much."""
    by = measure(high) - measure(low)
    if abs(by) < least:
        return []
    middle = (low + high) / 2
    if high - low <= precision:
        return [(middle, by)]
    below = jumps(measure, low, middle, precision, least)
    return [*below, *jumps(measure, middle, high, precision, least)]


# ---- float arithmetic


def large_model(researcher: Researcher) -> Outcome:
    """One step of FedSGD from an intercept of 16, where float32 has the last place 2^-20.

    In w - lr g, a hospital's change is 0 or one place, by whether lr g is above half of it; g is its share of rows
    without the label, and in the mean it counts by its rows.
    """
    _, _, rows = researcher.moments()
    spec = {**researcher.spec, "features": [researcher.features[researcher.finest()]]}
    job = researcher.job(FEDAVG, data=spec, model={"name": "logreg", "features": 1, "classes": 2})
    agreed = researcher.agreed(FEDAVG, job=job)
    agreed.rows = rows

    @functools.cache
    def places(lr: float) -> float:
        asked: dict[str, Any] = {"job": job, "arrays": {"weights": np.array([0.0, 16.0])}, "precision": "float32"}
        found = agreed.opened(*researcher.sums(FEDAVG, "client_update", agreed, **asked, local={"lr": lr}))[2]
        return -float(found[f"share weights 2^{FIRST}"][1]) * rows / PLACE

    low, high = PLACE, 2.5 * PLACE  # half a place by shares from 1/2 to 1/5
    found = [] if places(low) > 0.5 else jumps(places, low, high, 1e-3 * PLACE, 5)
    claims = [(by, by * PLACE / 2 / lr) for lr, by in found]
    truth = [(len(t), (t[LABEL] == 0).sum()) for t in researcher.tables.values()]
    return _known(researcher, right(claims, truth, (0.5, 0.5)), len(claims), HOSPITALS)


def resumed_scaffold(researcher: Researcher) -> Outcome:
    """The same by ordinary jobs of SCAFFOLD that go on from a forged result: central and server are honest.

    The result carries c, the mean of the hospitals' gradients as they follow from the changes of their models.
    """
    column = researcher.features[researcher.finest()]
    job = {"model": "logreg", "features": [column], "label": LABEL, "holdout": 0, "classes": [0, 1]}
    honest = researcher.central(SCAFFOLD, rounds=1, lr=0.1, **job)
    state = {"items": [["c", {"array": codec.encode({"": np.zeros(2)})}], ["known", {"items": []}]]}
    forged = {**honest, "weights": codec.encode({"weights": np.array([0.0, 16.0])}), "state": state}

    @functools.cache
    def hospitals(lr: float) -> float:
        result = researcher.central(SCAFFOLD, rounds=2, lr=lr, resume=forged, **job)
        c = codec.decode(dict(result["state"]["items"])["c"]["array"])[""]
        return float(c[1]) * len(researcher.block) * lr / PLACE

    low, high = PLACE, 2.5 * PLACE
    found = [] if hospitals(low) > 0.1 else jumps(hospitals, low, high, 0.01 * PLACE, 0.5)
    claims = [[PLACE / 2 / lr] for lr, by in found for _ in range(round(by))]
    truth = [[(t[LABEL] == 0).mean()] for t in researcher.tables.values()]
    return _known(researcher, right(claims, truth, [0.005]), len(claims), HOSPITALS)


def far_center(researcher: Researcher) -> Outcome:
    """Sums about a center of 2^52, which rounds each hospital's mean to a whole number, counted by its rows.

    A step moves the column until it does so to the next one. Sums are read modulo 2^28.
    """
    mean, scale, _ = researcher.moments()
    k = researcher.finest()
    column = researcher.features[k]

    @functools.cache
    def rounded(t: float) -> float:
        steps = [standardize(mean[[k]] + (t - 2) * scale[[k]], scale[[k]])]
        job = researcher.job(FEDAVG, data={**researcher.spec, "features": [column], "preprocess": steps})
        agreed = researcher.agreed(FEDAVG, job=job)
        asked: dict[str, Any] = {"job": job, "arrays": {"center": np.array([FAR_CENTER])}, "statistic": "moments"}
        sums, answers = researcher.sums(FEDAVG, "fit_step", agreed, **asked)
        return float(modulo(agreed, sums, answers, "first", 20).view(np.int64)[0]) * 2.0 ** (20 - 56)

    found = jumps(rounded, 0.0, 1.0, 0.01, 30)
    claims = [[float(mean[k] + (t - 0.5) * scale[k])] for t, _ in found]
    truth = [[t[column].mean()] for t in researcher.tables.values()]
    return _known(researcher, right(claims, truth, [0.01 * scale[k]]), len(claims), HOSPITALS)


def modulo(agreed: Agreed, sums: Sums, answers: Any, name: str, e: int) -> np.ndarray:
    """A part of a sum in one unit, as it comes: whole numbers modulo 2^64."""
    words, at = agreed.added(sums, answers)[0][64], HEADER
    for part in sums.parts:
        size = int(np.prod(part.shape, dtype=np.int64))
        if part.bits == 64 and part.name == name and part.exponent == e:
            return words[at : at + size]
        at += size if part.bits == 64 else 0
    raise LookupError(name)


# ---- numbers that are flushed to 0


def tiny_scale(researcher: Researcher) -> Outcome:
    """Covariances of a column that is divided by t 2^1022: values below t count as 0, those above as what they are.

    Behind all limits on columns, they are then sums over the rows above t: of one row, if t is below the largest value
    alone. Another column is centred so far away that all of its values are the same.
    """
    k, d = researcher.finest(), len(researcher.features)
    mean, scale, _ = researcher.moments()
    unit = 2.0 ** np.ceil(np.log2(np.max(mean + 20 * scale)))  # all values are between 0 and 1 then
    steps, others = [standardize(np.zeros(d), np.full(d, unit))], [i for i in range(d) if i != k]

    def above(t: float, same: int) -> np.ndarray:
        """The sums of products of the column with all others, of which one is 1 in all rows, over the rows above t."""
        center, divided = np.zeros(d), np.full(d, 2.0**-100)
        center[same], divided[same], divided[k] = -(2.0**90), 2.0**-10, t / TINY
        request: dict[str, Any] = {"arrays": {"mean": center, "scale": divided}, "statistic": "covariance"}
        A = np.zeros((d, d))
        A[np.triu_indices(d)] = researcher.ask(FEDAVG, "fit_step", data={"preprocess": steps}, **request)["covariance"]
        return (A + A.T)[k] * (t / TINY) * 2.0**-100

    low, high, t = 0.0, 1.0, 0.5
    while high - low > 1e-12 and not 0 < (total := above(t, others[0])[others[0]]) < 2 * t:
        low, high = (low, t) if total == 0 else (t, high)
        t = (low + high) / 2
    one, other = above(t, others[0]), above(t, others[1])
    row = other / one[others[0]]
    row[others[1]], row[k] = one[others[1]] / one[others[0]], one[others[0]]
    return researcher.found([row * unit])


# ---- what each hospital keeps, holds out, weighs, or cannot compute


def kept_state(researcher: Researcher) -> Outcome:
    """SCAFFOLD: the target alone is asked first, then all with a rate of 0, so that all keep under the same request."""
    column = researcher.features[researcher.finest()]
    spec = {**researcher.spec, "features": [column]}
    job = researcher.job(SCAFFOLD, data=spec, model={"name": "logreg", "features": 1, "classes": 2})
    agreed, at, rate = researcher.agreed(SCAFFOLD, job=job), np.array([0.0, 0.1]), 0.1

    def asked(seq: int, to: Sequence[int], known: dict[str, int], lr: float) -> tuple[Sums, Any]:
        arrays = {"weights": at, "c": np.zeros(2)}
        more: dict[str, Any] = {"job": job, "round_": seq, "seq": seq, "to": to, "arrays": arrays}
        return researcher.sums(SCAFFOLD, "client_update", agreed, **more, known=known, local={"lr": lr})

    asked(1, [TARGET], {}, rate)
    asked(2, agreed.members, {"block 1": 1}, 0.0)
    nodes, _, with_state = agreed.opened(*asked(3, agreed.members, {"block 1": 2}, rate))
    _, _, without = agreed.opened(*asked(4, agreed.members, {}, rate))
    if nodes != len(agreed.members):
        return _known(researcher, 0, 0, "hospitals' gradients", 1)
    claim = (with_state[f"equal dy 2^{FIRST}"] - without[f"equal dy 2^{FIRST}"])[1] * nodes / rate
    true = 1 / (1 + math.exp(-at[1])) - researcher.tables[TARGET][LABEL].mean()
    return _known(researcher, int(abs(claim - true) < 1e-4), 1, "hospitals' gradients", 1)


def shares_of_rows(researcher: Researcher) -> Outcome:
    """Means by rows, of changes that are known and large, over a number of rows that central chooses.

    With a penalty on huge weights all hospitals' changes are the same number. If each is multiplied by n_k / N, the
    place where float64 rounds that is a fingerprint of n_k.
    """
    column, W, lr = researcher.features[researcher.finest()], 1.375 * 2.0**43, 0.25
    change = (1 - lr) ** 2 * W - W  # two steps
    spec = {**researcher.spec, "features": [column]}
    job = researcher.job(FEDAVG, data=spec, model={"name": "logreg", "features": 1, "classes": 2, "l2": 1.0})
    agreed, total, left = researcher.agreed(FEDAVG, job=job), 0, np.empty((0, 4), np.int64)
    for request in range(20):
        agreed.rows = 1000 + 7 * request
        asked: dict[str, Any] = {"job": job, "arrays": {"weights": np.array([W, 0.0])}}
        sums, answers = researcher.sums(FEDAVG, "client_update", agreed, **asked, local={"lr": lr, "epochs": 2})
        if not total:
            total = int(agreed.opened(sums, answers)[2]["one n"])
            left = _deals(total)
        units = [int(change * (n / agreed.rows) * 2.0**20) * 2**26 % 2**64 for n in range(total)]
        y = modulo(agreed, sums, answers, "weights", FIRST)[0]
        off = np.array(units, np.uint64)[left].sum(axis=1, dtype=np.uint64) - y
        left = left[np.abs(off.view(np.int64)) < 2**20]
    true = sorted(map(len, researcher.tables.values()))
    few = len(left) <= 4 and true in left.tolist()  # a number, and twice it, can round alike
    return _known(researcher, few * len(researcher.block), len(researcher.block) * min(len(left), 4), HOSPITALS)


def _deals(total: int) -> np.ndarray:
    """All ways to deal rows over four hospitals with 10 rows or more, in ascending order."""
    a, b, c = np.meshgrid(*[np.arange(10, total // k + 1, dtype=np.int16) for k in (4, 3, 2)], indexing="ij")
    d = total - a - b - c
    return np.stack([each[(a <= b) & (b <= c) & (c <= d)] for each in (a, b, c, d)], axis=1).astype(np.int64)


def losses_that_fail(researcher: Researcher) -> Outcome:
    """All rows have the loss 2^260 / rows: is the sum of some hospital too large? Halve the bound, with a job for each.

    The largest hospital fails first.
    """
    column = researcher.features[researcher.finest()]
    spec = {"label": column, "features": [LABEL], "classes": None, "regression": True}

    def fails(rows: float) -> bool:
        loss = {"name": "squared", "mean": 0.0, "scale": math.sqrt(2.0**260 / rows) / 1e20}
        model, arrays = {"name": "linear", "loss": loss}, {"weights": np.array([0.0, 1e20])}
        try:
            researcher.ask(FEDAVG, "client_update", data=spec, model=model, arrays=arrays, local={"lr": 0.0})
            return False
        except Failed:
            return True

    low, high = 10.5, 1000.5
    largest = max(map(len, researcher.tables.values()))
    if fails(low) == fails(high):
        return _known(researcher, 0, 0, "largest hospitals' rows", 1)
    while high / low > 1.004:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if not fails(middle) else (middle, high)
    return _known(researcher, int(abs(math.sqrt(low * high) - largest) < 1), 1, "largest hospitals' rows", 1)


def shares_held_out(researcher: Researcher) -> Outcome:
    """Two jobs whose shares of held-out rows differ in the seventh digit, where rows are halfway between two.

    The target holds out ten rows more in one of them, and the others, which have other numbers of rows, do not.
    """
    h = 25 / len(researcher.tables[TARGET])  # 2.5 times ten rows
    sums = []
    for share in (h + 1e-7, h - 1e-7):
        answer = researcher.ask(FEDAVG, "fit_step", data={"holdout": share}, statistic="moments")
        sums.append((answer.values["n"], answer.values["n"] * codec.whole(answer.arrays, "mean")))
    return _known(researcher, int(abs(sums[0][0] - sums[1][0]) == 10), 1, "sums over ten rows of one hospital", 1)
