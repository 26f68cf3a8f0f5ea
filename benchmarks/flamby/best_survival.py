"""All methods on the survival data within one preprocessing, each after a search inside the training rows.

The tables have two C-indices. One compares only test rows of the same region, since nodes can add up nothing else. The
other compares all test rows, which needs the rows of all regions in one place.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm

from benchmarks import runs, tables
from benchmarks.flamby import data, emulated
from benchmarks.flamby.data import Task
from benchmarks.flamby.ours import CERTAIN, EVENT, REPEATED, SURVIVAL, TIME, Hospitals, fitted, survival
from v6_federated.data.source import Source
from v6_workbench.reporting.prediction import predict
from v6_workbench.simulation.datasets import Dataset, pool

DOCUMENT, FOLDS, LEVEL = "flamby", 5, 0.05
LAST = 5  # the region with 2 events among its training rows, which a node with the profile careful refuses
RATES = (0.01, 0.03, 0.1, 0.3)
SMALL = (0.003, 0.01, 0.03, 0.1)
COMMON: Mapping[str, Any] = {**SURVIVAL, "preprocess": ["standardize"], "holdout": 0.0}
MINIBATCHES: Mapping[str, Any] = {"rounds": 10, "batch_size": 32, "epochs": 3}
WHOLE: Mapping[str, Any] = {"rounds": 10, "epochs": 10}  # each step is about all rows of a node
ALONE = {"V6_FEDERATED_MINIMUM_ORGANIZATIONS": "1"}  # baselines have one node
CAREFUL = {"V6_FEDERATED_PROFILE": "careful", "V6_FEDERATED_AGGREGATION": "plain"}


@dataclass(frozen=True)
class Method:
    """A method and its search.

    Attributes:
        package: the method's name.
        fixed: its settings, on top of the common ones.
        searched: the setting that is searched for; empty if there is none.
        grid: its values.
        local: whether nodes take steps of their own, about minibatches or all of their rows.
        refused: what the profile ``careful`` refuses it for; empty if it does not.
    """

    package: str
    fixed: Mapping[str, Any]
    searched: str = "lr"
    grid: Sequence[float] = RATES
    local: bool = True
    refused: str = ""

    def values(self, found: float | None, whole: bool) -> dict[str, Any]:
        """The settings of a job; ``found`` is the searched one's value, ``whole`` that no step is about fewer rows."""
        if self.package == "cox":
            return {"label": TIME, "event": EVENT, "rounds": 25, **self.fixed}
        steps = (WHOLE if whole else MINIBATCHES) if self.local else {}
        values = {**COMMON, **steps, **self.fixed, self.searched: found}
        return {**values, "evaluate_every": values["rounds"]}


ADAPTIVE: Mapping[str, Any] = {"lr": 0.03}
METHODS: Mapping[str, Method] = {
    "FedSGD with momentum": Method("fedavg", {"rounds": 50, "server_momentum": 0.9}, local=False),
    "FedAvg": Method("fedavg", {}),
    "FedProx": Method("fedavg", {"proximal_mu": 0.1}),
    "FedAdagrad": Method("fedavg", {**ADAPTIVE, "server_optimizer": "adagrad"}, "server_lr"),
    "FedAdam": Method("fedavg", {**ADAPTIVE, "server_optimizer": "adam"}, "server_lr", SMALL),
    "FedYogi": Method("fedavg", {**ADAPTIVE, "server_optimizer": "yogi"}, "server_lr", SMALL),
    "cyclic": Method("fedavg", {"schedule": "cyclic"}, refused="aggregation"),
    "SCAFFOLD": Method("scaffold", {}),
    "Co-Learning": Method("colearning", {}),
    "LoAdaBoost": Method("loadaboost", {}, refused="aggregation"),
    "dynamic averaging": Method("dynavg", {}, refused="aggregation"),
    "CO-OP": Method("coop", {}, refused="aggregation"),
    "exact, a stratum a region": Method("cox", {"ties": "breslow"}, "", (), local=False),
    "exact, one baseline hazard": Method("cox", {"strata": "none"}, "", (), local=False, refused="weights"),
}
GRADIENT, EXACT = "FedSGD with momentum", "exact, a stratum a region"
ABOUT = (
    "FLamby's 39 columns, standardized by the means and deviations over all regions; a linear model of the log hazard, "
    f"which starts at zero. One setting of each method is the best of a grid in {FOLDS}-fold cross-validation within "
    "the training rows: that with the largest partial likelihood of left-out rows, each compared with left-out rows of "
    "its region. No test row takes part. The search is repeated with each of the five seeds, which also draw the "
    "minibatches; the numbers are means over seeds (and standard deviations), the settings found are listed with how "
    "many seeds found them. `FSVRG` and boosted trees are missing: they have no partial likelihood. The exact "
    f"regressions leave out {len(REPEATED) + len(CERTAIN)} columns, as above, and have no setting to search for."
)
MEASURES = (
    "**Which C-index.** A pair of rows counts if one is known to have had its event first; the share of such pairs in "
    "which it has the larger hazard is the C-index, and equal hazards count half. *Mean of regions* is FLamby's "
    "measure: a C-index for each region, and their mean, in which the one event of region 5 weighs as much as the 14 "
    "of region 0. *Pairs within regions* is what the nodes of this package add up: the pairs of all regions together, "
    "each of two rows of the same region. *All pairs* also compares rows of two regions. It can be computed here "
    "because the rows lie in one place; in a federation it would need each patient's time and hazard."
)


def scores(result: Mapping[str, Any], rows: pd.DataFrame) -> np.ndarray:
    """The log hazard ratios of rows (n,)."""
    found, _ = predict(result, Source(table=rows.drop(columns=[TIME, EVENT])))
    return found["prediction"].to_numpy(np.float64)


def outcomes(rows: pd.DataFrame) -> torch.Tensor:
    """Events and times (n, 2)."""
    return torch.tensor(rows[[EVENT, TIME]].to_numpy(np.float64))


def fold(of: Hospitals, f: int, seed: int) -> Hospitals:
    """A fold of the training rows to test on, the others to train on; every fold has its share of a region's events."""
    training, test = [], []
    for k, rows in enumerate(of.training):
        assert isinstance(rows, pd.DataFrame)
        order = np.random.default_rng([seed, k]).permutation(len(rows))
        order = order[np.argsort(-rows[EVENT].to_numpy()[order], kind="stable")]
        unseen = np.sort(order[f::FOLDS])
        training.append(rows.iloc[np.setdiff1d(order, unseen)].reset_index(drop=True))
        test.append(rows.iloc[unseen].reset_index(drop=True))
    return Hospitals(f"fold {f} of {FOLDS}", training, test)


def unlikely(found: Sequence[np.ndarray], test: Sequence[pd.DataFrame]) -> float:
    """Minus the log partial likelihood of rows within their regions, for each event."""
    total = 0.0
    for s, rows in zip(found, test, strict=True):
        total += len(rows) * float(data.cox_loss(torch.tensor(s), outcomes(rows)))
    return total / sum(int(rows[EVENT].sum()) for rows in test)


def searched(
    dataset: Dataset, of: Hospitals, method: Method, seed: int, whole: bool, environment: Mapping[str, str] | None
) -> float | None:
    """The grid's value under which left-out rows are likeliest; the whole search of a seed is kept as one run."""
    if not method.grid:
        return None
    settings = _settings(dataset, of, method, seed, whole, environment)
    known = {**settings, **method.values(None, whole), "search": list(method.grid), "folds": FOLDS}

    def search(_: Any) -> dict[str, Any]:
        losses = []
        for value in method.grid:
            found, test = [], []
            for f in range(FOLDS):
                part = fold(of, f, seed)
                result = fitted(part, method.package, method.values(value, whole), seed, environment)
                tables_ = [rows for rows in part.test if isinstance(rows, pd.DataFrame)]
                found += [scores(result, rows) for rows in tables_]
                test += tables_
            losses.append(unlikely(found, test))
        return {"history": [{"round": i, "loss": loss} for i, loss in enumerate(losses, start=1)]}

    history = runs.kept_as(DOCUMENT, known, search).history
    return method.grid[int(np.argmin([row["loss"] for row in history]))]


def finished(
    dataset: Dataset,
    of: Hospitals,
    method: Method,
    value: float | None,
    seed: int,
    whole: bool,
    environment: Mapping[str, str] | None = None,
) -> np.ndarray:
    """Train with a setting. Kept, with the log hazard ratio of each test row (n,) as the loss of its history."""
    values = method.values(value, whole)
    if method.package == "cox":  # columns that say what others say are refused
        named = [c for c in of.training[0] if c not in (*REPEATED, *CERTAIN, TIME, EVENT)]
        values["features"] = named
    known = {**_settings(dataset, of, method, seed, whole, environment), **values, "rows": "each"}

    def train(_: Any) -> dict[str, Any]:
        result = fitted(of, method.package, values, seed, environment)
        found = np.concatenate([scores(result, rows) for rows in of.test if isinstance(rows, pd.DataFrame)])
        return {"history": [{"round": values["rounds"], "loss": s} for s in found.tolist()]}

    return np.array([row["loss"] for row in runs.kept_as(DOCUMENT, known, train).history])


def _settings(
    dataset: Dataset, of: Hospitals, method: Method, seed: int, whole: bool, environment: Mapping[str, str] | None
) -> dict[str, Any]:
    return {
        "method": method.package,
        "data": f"{dataset.name} {runs.text_digest(dataset)}",
        "prepared": of.name,
        **({"environment": dict(environment)} if environment else {}),
        "seed": seed,
    }


# ---- the C-index


@dataclass(frozen=True)
class Pairs:
    """Pairs of test rows that can be compared.

    Attributes:
        comparable: whether row i is known to have had its event before row j (n, n).
        region: of each row (n,).
    """

    comparable: np.ndarray
    region: np.ndarray

    @property
    def within(self) -> np.ndarray:
        """Those of one region."""
        return self.comparable & (self.region[:, None] == self.region)

    def shares(self, s: np.ndarray) -> tuple[float, float, float]:
        """The mean of the regions' C-indices, that of pairs within regions, and that of all pairs."""
        right = concordant(s)
        regions = [self.comparable & (self.region == k)[:, None] & (self.region == k) for k in np.unique(self.region)]
        mean = float(np.mean([right[pairs].mean() for pairs in regions]))
        return mean, float(right[self.within].mean()), float(right[self.comparable].mean())

    def influence(self, s: np.ndarray) -> np.ndarray:
        """How far each row moves the C-index of pairs within regions from what it is (n,); their sum is 0."""
        pairs = self.within
        apart = np.where(pairs, concordant(s) - concordant(s)[pairs].mean(), 0)
        return np.asarray((apart.sum(axis=0) + apart.sum(axis=1)) / pairs.sum())


def concordant(s: np.ndarray) -> np.ndarray:
    """Whether row i has a higher score than row j, half if they are equal (n, n)."""
    return (s[:, None] > s) + 0.5 * (s[:, None] == s)


def pairs_of(of: Hospitals) -> Pairs:
    """The pairs of the test rows of all regions."""
    every = pool(of.test)
    assert isinstance(every, pd.DataFrame)
    event, time = every[EVENT].to_numpy() > 0, every[TIME].to_numpy()
    later = (time[:, None] < time) | ((time[:, None] == time) & ~event)
    return Pairs(event[:, None] & later, np.repeat(np.arange(len(of.test)), [len(rows) for rows in of.test]))


# ---- tables


def lines(dataset: Dataset, task: Task, full: bool) -> Iterator[str]:
    """Each method's best, pooled rows and each region alone, and what the profile ``careful`` leaves of it."""
    of, seeds = survival(task), emulated.seeds(full)
    pairs = pairs_of(of)
    yield ""
    yield "## All methods within one preprocessing"
    yield ""
    yield ABOUT
    yield ""
    yield MEASURES
    yield ""
    columns = ("mean of regions", "pairs within regions", "all pairs")
    yield from tables.head("method", "found (seeds)", *columns)
    methods = {name: method for name, method in METHODS.items() if full or name in (GRADIENT, EXACT)}
    found: dict[str, np.ndarray] = {}
    for name, method in methods.items():
        yield _line((name,), functools.partial(_measured, dataset, of, method, seeds, False, None), pairs, found)
    for name, rows in baselines(of, task).items():
        method = METHODS[GRADIENT]
        cells = functools.partial(_measured, dataset, rows, method, seeds[:1], False, ALONE)
        yield _line((f"{name}, gradient descent with momentum",), cells, pairs, {})
    every = baselines(of, task)["pooled rows"]
    cells = functools.partial(_measured, dataset, every, METHODS[EXACT], seeds[:1], False, ALONE)
    yield _line(("pooled rows, exact",), cells, pairs, {})
    yield ""
    yield significance(found, pairs)
    if full:
        yield from careful(dataset, of, seeds, pairs)


def baselines(of: Hospitals, task: Task) -> Mapping[str, Hospitals]:
    """All rows at one node, and each region's rows alone; tested on all regions."""
    every = Hospitals("pooled", [pool(of.training)], of.test)
    named = zip(task.names, of.training, strict=True)
    return {"pooled rows": every, **{f"{n} alone": Hospitals(f"{n} alone", [rows], of.test) for n, rows in named}}


Found = tuple[list[float | None], list[np.ndarray]]


def _measured(
    dataset: Dataset,
    of: Hospitals,
    method: Method,
    seeds: Sequence[int],
    whole: bool,
    environment: Mapping[str, str] | None,
) -> Found:
    """What each seed found, and the scores of its test rows."""
    few = seeds if method.grid else seeds[:1]  # exact regression has no random choice
    values = [searched(dataset, of, method, seed, whole, environment) for seed in few]
    return values, [
        finished(dataset, of, method, value, seed, whole, environment) for value, seed in zip(values, few, strict=True)
    ]


def _line(known: tuple[str, ...], measured: Any, pairs: Pairs, found: dict[str, np.ndarray]) -> str:
    try:
        values, scores_ = measured()
    except runs.NotRun:
        return tables.row(*known, tables.NOT_RUN_YET, None, None, None)
    found[known[0]] = scores_[0]
    chosen = sorted({value for value in values if value is not None})
    text = ", ".join(f"{value:g} ({values.count(value)})" for value in chosen)
    shares = np.array([pairs.shares(s) for s in scores_]).T
    return tables.row(*known, text or None, *(_spread(column) for column in shares))


def _spread(values: np.ndarray) -> str:
    return emulated.spread(values) if len(values) > 1 else f"{values[0]:.4f}".removeprefix("0")


def significance(found: Mapping[str, np.ndarray], pairs: Pairs) -> str:
    """The sentence on whether methods differ: a z-test of each pair of them, by Holm's procedure.

    The error of a difference of two C-indices over the same test rows is that of the sum of what each row moves it by.
    """
    tests = []
    for a, b in itertools.combinations(found, 2):
        apart = pairs.influence(found[a]) - pairs.influence(found[b])
        error = float(np.sqrt(np.square(apart).sum()))
        difference = pairs.shares(found[a])[1] - pairs.shares(found[b])[1]
        tests.append((2 * float(norm.sf(abs(difference) / error)) if error > 0 else 1.0, a, b))
    if not tests:
        return ""
    tests.sort()
    least = next((i for i, (p, _, _) in enumerate(tests) if p > LEVEL / (len(tests) - i)), len(tests))
    some = next(iter(found))
    error = float(np.sqrt(np.square(pairs.influence(found[some])).sum()))
    about = (
        f"The standard error of one C-index of pairs within regions is {error:.3f} ({some}; from what each of the "
        f"{len(pairs.region)} test rows moves it by). Of {len(tests)} pairs of methods, by a test of their difference "
        f"on the same test rows (first seed) and Holm's procedure at {LEVEL}, "
    )
    p, a, b = tests[0]
    if least:
        return f"{about}{least} differ: {', '.join(f'{a} and {b} (p = {p:.4f})' for p, a, b in tests[:least])}."
    return f"{about}no two methods differ; the smallest p of a single pair is {p:.3f} ({a}, {b})."


def careful(dataset: Dataset, of: Hospitals, seeds: Sequence[int], pairs: Pairs) -> Iterator[str]:
    """The best settings that nodes with the profile ``careful`` permit."""
    own = replace(of, name="without the last region", training=of.training[:LAST])
    yield ""
    yield "## Under the profile careful"
    yield ""
    yield (
        f"Every node has the profile `careful`, in the search too. Region {LAST} has 2 events among its training rows, "
        "and refuses: a sum over so few events is about single patients. The job leaves it out; the model is tested on "
        "its rows all the same. The other nodes refuse minibatches in which some rows, but fewer than 5, have the "
        "event; of the 129 rows of region 4, 7 have it. So each local step is about all rows of a node, 10 of them a "
        "round, and the search is among such settings. FLamby's own settings are refused: batches of 8 rows, where 10 "
        "are the least. `aggregation`: the method needs single answers, so operators would "
        "have to set `V6_FEDERATED_AGGREGATION=plain`; its numbers are with that. `weights`: in the third round "
        "of the regression with one baseline hazard fewer than 5 rows of region 4 outweigh all others, however few "
        "bins there are, and the node refuses. Nodes would add up the second of the "
        "three measures only, rounded to about its standard error."
    )
    yield ""
    columns = ("mean of regions", "pairs within regions", "all pairs")
    yield from tables.head("method", "careful itself", "found (seeds)", *columns)
    for name, method in METHODS.items():
        refused = f"refused: {method.refused}" if method.refused else "permitted"
        if method.refused == "weights":
            yield tables.row(name, refused, *[None] * 4)
            continue
        yield _line(
            (name, refused), functools.partial(_measured, dataset, own, method, seeds, True, CAREFUL), pairs, {}
        )
    yield ""
    yield (
        "`FSVRG` and boosted trees have no partial likelihood under any profile. Under `private` all of these are "
        "refused: a row's part of the gradient depends on the rows that are at risk with it, and cannot be bounded row "
        "by row."
    )


def most(full: bool) -> int:
    """The most runs of these tables."""
    seeds = len(emulated.seeds(full))
    searches = len(METHODS) - 2 if full else 1
    return 2 * searches * seeds * (1 + full) + 2 * (1 + full) + 2 * 7 + 1
