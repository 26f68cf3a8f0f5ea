"""What one dishonest hospital of four can make of a ``glm``, a ``cox`` and a ``km`` within the bounds of plain answers.

No document has this table; ``poisoning`` has the methods that train a model. Either the liar makes up rows and is
honest about them, which nobody can notice. Or it makes up the sums that it sends: it knows those of the others (a real
node does not), and sends what leads to the answer that it wants. A lie that ends the job is made smaller.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import runs, tables
from v6_cox.measures import MEASURES as OF_COX
from v6_federated.base.errors import SafeError
from v6_federated.base.randomness import generator
from v6_federated.base.vantage6_api import CollectResultsError
from v6_federated.data import inference
from v6_federated.messages import codec
from v6_glm.measures import MEASURES as OF_GLM
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.mock import MockNetwork

NODES, LIAR, ROWS = (1, 2, 3, 4), 4, 250  # the liar is the last, whose answer is read after those of the others
SEEDS = (1, 2, 3, 4, 5)
SIZES = (9.9, 6.0, 4.0, 2.0, 1.0)  # of a lie, next to what the others send: the first that ends no job is taken
HONEST, NO_EFFECT, OPPOSITE, FAR, SUMS = (
    "all honest",
    "rows made up: no effect",
    "rows made up: the opposite effect",
    "the same, with doses far apart",
    "sums made up: no effect",
)
LIES = (HONEST, NO_EFFECT, OPPOSITE, FAR, SUMS)
GLM, COX, KM = "`glm`: odds ratio of the dose", "`cox`: hazard ratio of the dose", "`km`: median survival"
ANALYSES: dict[str, tuple[str, dict[str, Any]]] = {
    GLM: ("v6_glm", {"label": "ill", "family": "binomial", "features": ["age", "dose"]}),
    COX: ("v6_cox", {"label": "time", "event": "died", "features": ["age", "dose"]}),
    KM: ("v6_km", {"label": "time", "event": "died"}),
}
Tables = dict[int, pd.DataFrame]


def hospitals(seed: int) -> Tables:
    """Patients of four hospitals whose dose makes them ill, and die sooner."""
    rng, found = generator(seed, "hospitals"), {}
    for k in NODES:
        age, dose = rng.normal(60, 10, ROWS), rng.normal(5, 1, ROWS)
        eta = 0.02 * (age - 60) + 0.7 * (dose - 5)
        time, end = rng.exponential(10 * np.exp(-eta)), rng.uniform(5, 25, ROWS)
        found[k] = pd.DataFrame(
            {
                "age": age,
                "dose": dose,
                "ill": (rng.random(ROWS) < 1 / (1 + np.exp(-eta))).astype(int),
                "time": np.minimum(time, end),
                "died": (time <= end).astype(int),
            }
        )
    return found


def made_up(rows: pd.DataFrame, analysis: str, lie: str, size: float, seed: int) -> pd.DataFrame:
    """The liar's rows: its patients' doses dealt anew, or nobody dies."""
    if analysis == KM:
        return rows.assign(died=0, time=rows["time"].max())
    doses = np.sort(rows["dose"].to_numpy())
    if lie == NO_EFFECT:
        return rows.assign(dose=generator(seed, "liar").permutation(doses))
    if lie == FAR:
        doses = doses.mean() + size * (doses - doses.mean())
    worst_first = np.argsort(
        -rows["ill"] if analysis == GLM else rows["time"] + 1e3 * (1 - rows["died"]), kind="stable"
    )
    new = np.empty(len(rows))
    new[worst_first] = doses  # the lowest dose to those who are ill or die first
    return rows.assign(dose=new)


class MadeUpSums:
    """What becomes of each call of a job in which the liar's gradient leads to coefficients of its choice.

    Args:
        wanted: the coefficients, of the columns as they are; the last one is the intercept's, if there is one.
        size: how long the gradient may be, next to the longest of the others so far.
        measures: the names of the sums that are sent as ``measures``.
    """

    def __init__(self, wanted: np.ndarray, size: float, measures: tuple[str, ...]) -> None:
        self._wanted, self._size, self._measures = wanted, size, measures
        self._round, self._longest = 0, dict[int, float]()

    def __call__(self, organization: int, message: Mapping[str, Any]) -> CallOutcome:
        """What becomes of one call."""
        if message["method"] != "newton":
            return CallOutcome(1.0)
        sent = codec.decode(message["kwargs"]["arrays"]) if "arrays" in message["kwargs"] else {}
        if message["kwargs"]["round"] != self._round:
            self._round, self._others = message["kwargs"]["round"], list[dict[str, np.ndarray]]()

        def alter(answer: dict[str, Any]) -> dict[str, Any]:
            found = codec.decode(answer["arrays"])
            if organization != LIAR:
                self._others.append(found)
                length = float(np.linalg.norm(found["gradient"]))
                self._longest[organization] = max(length, self._longest.get(organization, 0.0))
                return answer
            return {**answer, "arrays": codec.encode(self._altered(found, sent), "float64")}

        return CallOutcome(1.0, alter=alter)

    def _altered(self, own: dict[str, np.ndarray], sent: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        p, H = len(own["gradient"]), sum(one["hessian"] for one in [*self._others, own])
        here, wanted = (_scaled(b, sent)[:p] for b in (sent.get("weights", np.zeros(p)), self._wanted))
        g = inference.symmetric(np.asarray(H), p) @ (wanted - here) - sum(one["gradient"] for one in self._others)
        longest = self._size * float(np.median([*self._longest.values()]))
        g = g * min(1.0, longest / max(float(np.linalg.norm(g)), 1e-300))
        told = own["measures"] + 0  # the fit seems to become better in each round, whatever it is
        if "deviance" in self._measures:
            told[self._measures.index("deviance")] = 4 * ROWS / self._round
        else:
            told[self._measures.index("log_likelihood")] += ROWS * (self._round - 30)
        return {**own, "gradient": g, "measures": told}


class Watched:
    """Calls of a job, of which the longest gradients are noted.

    Args:
        analysis: the analysis.
        outcomes: what becomes of each call; None if nobody lies.
    """

    def __init__(self, analysis: str, outcomes: Any) -> None:
        self._outcomes = outcomes or (lambda organization, message: CallOutcome(1.0))
        self._measures: Sequence[str] = OF_GLM if analysis == GLM else OF_COX
        self._over = "rows" if analysis == GLM else "events"
        self.longest = dict[int, float]()  # g^T H^-1 g over the rows or events, by organization: the largest of the job

    def __call__(self, organization: int, message: Mapping[str, Any]) -> CallOutcome:
        """What becomes of one call."""
        outcome = self._outcomes(organization, message)
        if message["method"] != "newton":
            return outcome

        def alter(answer: dict[str, Any]) -> dict[str, Any]:
            answer = answer if outcome.alter is None else outcome.alter(answer)
            found = codec.decode(answer["arrays"])
            g, told = np.asarray(found["gradient"], float), found["measures"][self._measures.index(self._over)]
            H = inference.symmetric(np.asarray(found["hessian"], float), len(g))
            length = float(g @ np.linalg.pinv(H, hermitian=True) @ g / told)
            self.longest[organization] = max(length, self.longest.get(organization, 0.0))
            return answer

        return replace(outcome, alter=alter)


def _scaled(b: np.ndarray, sent: Mapping[str, np.ndarray]) -> np.ndarray:
    """Coefficients of the columns as they are, as those of the columns that ``glm`` centres and scales."""
    if "scale" not in sent:
        return b
    found = b * sent["scale"]
    found[-1] += sent["center"] @ b
    return found


def run(analysis: str, nodes: Tables, outcomes: Any = None) -> dict[str, Any]:
    """The result of a job, with the length of each organization's longest gradient."""
    package, values = ANALYSES[analysis]
    outcomes = watched = Watched(analysis, outcomes)
    network = MockNetwork(package, nodes, environment={}, on_round=lambda row: None, outcomes=outcomes)
    with network:
        result: dict[str, Any] = network.run(holdout=0, **values) if analysis == GLM else network.run(**values)
    if "stopped" in result:
        raise SafeError(result["stopped"])
    return result | {"longest": watched.longest}


@functools.cache
def honest(analysis: str, seed: int) -> dict[str, Any]:
    """The result if nobody lies."""
    return run(analysis, hospitals(seed))


def number(analysis: str, result: Mapping[str, Any]) -> float:
    """What the analysis is about."""
    if analysis == KM:
        return float(result["curves_of_survival"][0]["median"] or np.inf)
    [dose] = [row["estimate"] for row in result["coefficients"] if row["name"] == "dose"]
    return float(np.exp(dose))


@functools.cache
def lied(analysis: str, lie: str, seed: int) -> dict[str, Any] | None:
    """The result then; None if there is no such lie."""
    if lie == HONEST:
        return honest(analysis, seed)
    if analysis == KM and lie != OPPOSITE:
        return None
    for size in SIZES if lie in (FAR, SUMS) else (1.0,):
        nodes, outcomes = hospitals(seed), None
        if lie == SUMS:
            fitted = {row["name"]: row["estimate"] for row in honest(analysis, seed)["coefficients"]}
            intercept = [fitted["intercept"] + 5 * fitted["dose"]] if analysis == GLM else [0.0]
            measures = OF_GLM if analysis == GLM else OF_COX
            outcomes = MadeUpSums(np.array([fitted["age"], 0.0, *intercept]), size, measures)
        else:
            nodes[LIAR] = made_up(nodes[LIAR], analysis, lie, size, seed)
        try:
            return run(analysis, nodes, outcomes)
        except (SafeError, CollectResultsError):  # a bound was broken
            continue
    return None


def lines(full: bool) -> Iterator[str]:
    """The table."""
    yield from tables.head("analysis", *LIES)
    for analysis in ANALYSES:
        cells = []
        for lie in LIES:
            cells.append(_spread([number(analysis, found) for found in _results(analysis, lie, full)]))
        yield tables.row(analysis, *cells)
    yield from ("", *tables.head("length of gradients", *LIES))
    for analysis, over in ((GLM, "`glm`, over rows"), (COX, "`cox`, over events")):
        for who, of in (("the liar's", [LIAR]), ("the longest of the others", [k for k in NODES if k != LIAR])):
            lengths = [[max(r["longest"][k] for k in of) for r in _results(analysis, lie, full)] for lie in LIES]
            yield tables.row(f"{over}: {who}", *map(_spread, lengths))


def _results(analysis: str, lie: str, full: bool) -> list[dict[str, Any]]:
    return [one for seed in (runs.seeds(SEEDS) if full else SEEDS[:1]) if (one := lied(analysis, lie, seed))]


def _spread(values: list[float]) -> str | None:
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{spread}" if values else None


def main(dataset: Dataset | None, full: bool) -> None:
    """Print and keep the table."""
    about = (
        f"Four hospitals with {ROWS} patients each, trusting nodes with plain answers, one of which lies. A higher "
        "dose makes patients ill, and they die sooner. Rows made up: the liar deals its own patients' doses anew, at "
        "random (no effect), or the lowest to those who are ill or die first (the opposite effect), or the same doses "
        f"up to {SIZES[0]:g} times as far from their mean. For `km`, nobody of its patients dies. Sums made up: "
        "gradients that lead to a dose without effect, and deviances or likelihoods by which each round seems to be "
        "an improvement. The length of a gradient is g^T H^-1 g, the largest of a job. For a `glm`, no rows have more "
        "than Pearson's X^2 (Cauchy-Schwarz), which is about their number; for `cox`, there is no such bound. A lie "
        "that ends the job is made smaller until it does not. Mean, lowest and highest of the seeds "
        f"{SEEDS[0]} to {SEEDS[-1]}. No document has this table."
    )
    page = tables.Page(
        "dishonest_analyses", "What a dishonest hospital costs an analysis", full, about, data="", timed=True
    )
    tables.page(page, lines(full))
