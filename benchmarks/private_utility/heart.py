"""Heart disease at four hospitals, each with a privacy budget of its own: accuracy, AUC and log-loss by epsilon."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold, train_test_split

from benchmarks import runs, tables
from benchmarks.private_utility.jobs import DOCUMENT, descended
from v6_federated.data.declared import conformed
from v6_federated.data.source import Source
from v6_federated.models.linear import LinearModel
from v6_federated.noise import accountant
from v6_federated.noise.plan import Plan
from v6_federated.rules.schema import Column, Schema
from v6_workbench import registry
from v6_workbench.reporting.prediction import predict
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

DELTA, SEEDS, EPSILONS, TARGET = 1e-4, (1, 2, 3, 4, 5), (1.0, 3.0), 1.0
LABEL, HOSPITAL, HOSPITALS = "target", "hospital", 4
TEST, SPLIT = 0.34, 43  # share of test rows and seed of the split, as in FLamby
PROFILE = {"V6_FEDERATED_PROFILE": "private", "V6_FEDERATED_DELTA": f"{DELTA:g}"}
# column: lowest and highest declared value, and why
RANGES: Mapping[str, tuple[float, float, str]] = {
    "age": (20, 100, "years of adults"),
    "trestbps": (80, 220, "mm Hg at rest: from shock to a hypertensive crisis"),
    "chol": (100, 400, "mg/dl: higher values are nearly always hereditary; 0, where it is missing, becomes 100"),
    "thalach": (60, 220, "beats a minute: from a resting heart to 220 minus age of the youngest"),
    "oldpeak": (0, 5, "mm: a depression of ST of 1 or 2 is pathological, more than 5 is rare"),
}
# column: the names of its codes in the data's dictionary
LEVELS: Mapping[str, Mapping[float, str]] = {
    "sex": {0: "female", 1: "male"},
    "cp": {1: "typical angina", 2: "atypical angina", 3: "other pain", 4: "no symptoms"},
    "fbs": {0: "up to 120 mg/dl", 1: "above 120 mg/dl"},
    "restecg": {0: "normal", 1: "ST-T abnormality", 2: "hypertrophy"},
    "exang": {0: "no", 1: "yes"},
}
SCHEMA = Schema(
    tuple(
        [Column(name, "number", low, high) for name, (low, high, _) in RANGES.items()]
        + [Column(name, "words", levels=tuple(words.values())) for name, words in LEVELS.items()]
    ),
    label=LABEL,
    classes=(0, 1),
)
GRID: tuple[Mapping[str, Any], ...] = tuple(
    {"rounds": rounds, "clip": 1.0, "lr": lr, "server_momentum": 0.0}
    for rounds in (10, 30, 100)
    for lr in (0.3, 1.0, 3.0)
)
TREES: Mapping[str, Any] = {"rounds": 10, "clip": 1.0}  # the method's defaults otherwise
MORE = (8.0,)  # epsilon
PLAIN: Mapping[str, Any] = {"rounds": 300, "lr": 1.0, "server_momentum": 0.0}
FOLDS, REPEATS = 5, 10  # of the search
ABOUT = (
    "Logistic regression, and boosted trees with their default settings, on ten columns of UCI's heart disease data, "
    "at its four hospitals. Rows and split are those of FLamby's Fed-Heart-Disease: rows without a missing value in "
    f"these columns, a share of {TEST} of each hospital to test on. Regression is FedSGD on all rows. Its sums, and "
    "those of the trees, have noise that the hospitals share in a study of one block, which assumes that "
    f"one of them works with the server; delta {DELTA:g}. The nodes run under the profile `private`, with a budget of "
    "epsilon in their ledgers. What the hospitals declare about their columns, in the second table, was fixed "
    "beforehand from what these columns mean, and costs nothing. Rounds and learning rate are the best log-loss of a "
    f"small grid in {FOLDS}-fold cross-validation on the training rows ({REPEATS} runs of the same steps with noise "
    "for each fold); that search is not paid for, and reads no test rows. Measures are of the 254 test rows together, "
    "except the mean of hospitals, which is what FLamby prints; all by this benchmark and without noise. They are mean "
    "and standard deviation over seeds, which are draws of the noise alone. An accuracy on 254 rows has itself a "
    "standard error of 0.03. Noise has no seed: a run cannot be repeated to the last bit."
)


@dataclass(frozen=True)
class Split:
    """Training and test rows of each hospital."""

    training: Mapping[str, pd.DataFrame]
    test: Mapping[str, pd.DataFrame]


def split(table: pd.DataFrame) -> Split:
    """FLamby's rows and split, with the words of the data's dictionary."""
    table = table[[HOSPITAL, *RANGES, *LEVELS, LABEL]].dropna()
    table = table.assign(**{name: table[name].map(dict(words)) for name, words in LEVELS.items()})
    training, test = dict[str, pd.DataFrame](), dict[str, pd.DataFrame]()
    for name, rows in table.groupby(HOSPITAL):
        rows = rows.drop(columns=HOSPITAL)
        parts = (rows.iloc[part] for part in parted(rows[LABEL].to_numpy()))
        training[str(name)], test[str(name)] = (part.reset_index(drop=True) for part in parts)
    return Split(training, test)


def parted(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """FLamby's training and test rows of a hospital, by their numbers; y (n,) are the classes."""
    by = y if np.unique(y, return_counts=True)[1].min() > 2 else None
    training, test = train_test_split(np.arange(len(y)), test_size=TEST, random_state=SPLIT, stratify=by)
    return training, test


def settings(epsilon: float | None, local: Mapping[str, Any], method: str = "fedavg") -> dict[str, Any]:
    """The settings of a job; without epsilon it has no noise."""
    return {
        **({"model": "logreg"} if method == "fedavg" else {}),
        "aggregation": "pinned",
        "evaluate_every": local["rounds"],
        "holdout": 0.0,
        "preprocess": ["scale", "onehot"],
        **local,
        **({} if epsilon is None else {"epsilon": epsilon, "delta": DELTA}),
    }


def plan_of(values: Mapping[str, Any], method: str = "fedavg") -> Plan | None:
    """What a job asks of a node in all; None if it has no noise."""
    plan: Plan | None = registry.central_of(method).plan_of(registry.validate(method, dict(values)))
    return plan


def _declared(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows as nodes see them."""
    table = conformed(Source(table=rows), SCHEMA).table
    assert table is not None
    return table


def measured(probabilities: np.ndarray, test: Mapping[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """How probabilities of the test rows do: a row for each hospital, then one for all together."""
    y = pd.concat(test.values())[LABEL].to_numpy()
    right = (probabilities > 0.5) == y
    ends = np.cumsum([len(rows) for rows in test.values()])[:-1]
    each: list[dict[str, Any]] = [{"accuracy": float(part.mean())} for part in np.split(right, ends)]
    auc, loss = float(roc_auc_score(y, probabilities)), float(log_loss(y, probabilities))
    return [*each, {"accuracy": float(right.mean()), "auc": auc, "loss": loss}]


def trained(dataset: Dataset, values: Mapping[str, Any], seed: int, method: str = "fedavg") -> runs.Run:
    """A job on mock nodes, evaluated on the test rows; kept."""
    plan = plan_of(values, method)
    known = {
        "method": method,
        "data": f"{dataset.name} {runs.text_digest(dataset)}",
        "schema": SCHEMA.shared_digest,
        **({} if plan is None else {"plan_noise": plan.noise if plan.steps else plan.statistics_noise}),
        **values,
        "seed": seed,
    }
    return runs.kept_as(DOCUMENT, known, functools.partial(_job, dataset, values, seed, method))


def _job(dataset: Dataset, values: Mapping[str, Any], seed: int, method: str, on_round: Any) -> dict[str, Any]:
    assert isinstance(dataset.rows, pd.DataFrame)
    rows = split(dataset.rows)
    private = "epsilon" in values
    budget = f"{values['epsilon']:g}" if private else ""
    whole = {"V6_FEDERATED_EPSILON": budget, "V6_FEDERATED_EPSILON_PER_JOB": budget}
    environment = {**PROFILE, **whole} if private else {}
    network = MockNetwork(
        f"v6_{method}",
        dict(enumerate(rows.training.values(), start=1)),
        environment=environment,
        study=StudyPlan(schema=SCHEMA),
        on_round=on_round or (lambda row: None),
    )
    with network:
        result = network.run(**values, seed=seed)
    assert not private or result["privacy"]["noise_shared_in_a_block"]
    test = pd.concat([_declared(part) for part in rows.test.values()], ignore_index=True)
    found, _ = predict(result, Source(table=test))
    history = measured(found["probability=1"].to_numpy(), rows.test)
    return {"history": [{"round": values["rounds"], **row} for row in history]}


def searched(dataset: Dataset, values: Mapping[str, Any]) -> runs.Run:
    """Cross-validation of the same steps on the pooled training rows; kept."""
    plan = plan_of(values)
    assert plan is not None
    known = {
        "method": "search",
        "data": f"{dataset.name} {runs.text_digest(dataset)}",
        "schema": SCHEMA.shared_digest,
        "folds": FOLDS,
        "repeats": REPEATS,
        "plan_noise": plan.noise,
        **values,
    }
    return runs.kept_as(DOCUMENT, known, functools.partial(_search, dataset, values, plan))


def _search(dataset: Dataset, values: Mapping[str, Any], plan: Plan, _: object) -> dict[str, Any]:
    assert isinstance(dataset.rows, pd.DataFrame)
    training = split(dataset.rows).training
    table = _declared(pd.concat(training.values(), ignore_index=True))
    X, y = _encoded(table), table[LABEL].to_numpy(np.int64)
    model, noises = LinearModel("logistic", X.shape[1], 2), HOSPITALS / (HOSPITALS - 1)
    rng, losses = np.random.default_rng(0), list[float]()
    for known, unseen in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y):
        part = replace(plan, noise=plan.noise * len(known) / len(y))  # of a mean, as large as with all rows
        for _repeat in range(REPEATS):
            w = descended(model, X[known], y[known], values, part, noises, rng)
            losses.append(model.loss(model.scores(w, X[unseen]), y[unseen]))
    return {"history": [{"round": values["rounds"], "loss": float(np.mean(losses))}]}


def _encoded(table: pd.DataFrame) -> np.ndarray:
    """Declared columns as the steps ``scale`` and ``onehot`` make them."""
    numbers = [(2 * table[name] - low - high) / (high - low) for name, (low, high, _) in RANGES.items()]
    levels = [table[name] == level for name, words in LEVELS.items() for level in words.values()]
    return np.column_stack([*numbers, *levels]).astype(np.float32)


def lines(dataset: Dataset, full: bool) -> Iterator[str]:
    """The lines of the page."""
    epsilons = EPSILONS if full else (TARGET,)
    search = {epsilon: [_loss(dataset, epsilon, local) for local in GRID] for epsilon in epsilons}
    columns = ("epsilon", "by PLD", "rounds", "z", "C", "lr", "accuracy", "mean of hospitals", "AUC", "log-loss")
    yield from tables.head("", *columns)
    for epsilon in epsilons:
        local = GRID[int(np.argmin(search[epsilon]))]
        values = settings(epsilon, local)
        plan = plan_of(values)
        assert plan is not None
        bounds = accountant.epsilon([plan], DELTA), accountant.epsilon_pld(plan, DELTA)
        noise = (local["rounds"], f"{plan.noise:.2f}", local["clip"], local["lr"])
        yield _row(("ours", *(f"{bound:.3f}" for bound in bounds), *noise), dataset, values, full)
    for epsilon in (*epsilons, *MORE) if full else epsilons:
        values = settings(epsilon, TREES, "gbdt")
        plan = plan_of(values, "gbdt")
        assert plan is not None
        bounds = accountant.epsilon([plan], DELTA), accountant.epsilon_pld(plan, DELTA)
        noise = (TREES["rounds"], f"{plan.statistics_noise:.2f}", TREES["clip"], 0.1)
        known = ("ours, 100 boosted trees", *(f"{bound:.3f}" for bound in bounds), *noise)
        yield _row(known, dataset, values, full, "gbdt")
    plain = (PLAIN["rounds"], None, None, PLAIN["lr"])
    yield _row(("ours, without noise, not clipped", None, None, *plain), dataset, settings(None, PLAIN), False)
    plain = (TREES["rounds"], None, None, 0.1)
    values = settings(None, {"rounds": TREES["rounds"]}, "gbdt")
    yield _row(("ours, 100 boosted trees without noise", None, None, *plain), dataset, values, False, "gbdt")
    absent = (None,) * 3
    yield tables.row("prototype, untuned", "1", None, *absent, None, ".732", None, ".808", ".591")
    yield tables.row(
        "FLamby, FedAvg with noise in its optimiser", "not comparable", None, *absent, None, None, ".685", None, None
    )
    yield ""
    yield "What hospitals declare about their columns (`schema.json`):"
    yield ""
    yield from tables.head("column", "declared", "reason")
    for name, (low, high, why) in RANGES.items():
        yield tables.row(name, f"{low:g} to {high:g}", why)
    for name, words in LEVELS.items():
        yield tables.row(name, ", ".join(words.values()), "the codes of the data's dictionary")
    yield ""
    yield "Log-loss of the search:"
    yield ""
    yield from tables.head("epsilon", *(f"{local['rounds']} rounds, lr {local['lr']:g}" for local in GRID))
    for epsilon, found in search.items():
        yield tables.row(f"{epsilon:g}", *(f"{loss:.3f}" for loss in found))


def _loss(dataset: Dataset, epsilon: float, local: Mapping[str, Any]) -> float:
    return float(searched(dataset, settings(epsilon, local)).history[-1]["loss"])


def _row(
    known: tuple[object, ...], dataset: Dataset, values: Mapping[str, Any], full: bool, method: str = "fedavg"
) -> str:
    def cells() -> list[str]:
        found = [trained(dataset, values, seed, method).history for seed in runs.seeds(SEEDS if full else SEEDS[:1])]
        hospitals = [np.mean([row["accuracy"] for row in history[:-1]]) for history in found]
        of_all = ([history[-1][name] for history in found] for name in ("accuracy", "auc", "loss"))
        accuracy, auc, loss = map(_spread, of_all)
        return [accuracy, _spread(hospitals), auc, loss]

    return tables.trained(known, cells, 4)


def _spread(values: Sequence[Any]) -> str:
    mean = f"{np.mean(values):.3f}".removeprefix("0")
    return mean if len(values) == 1 else f"{mean} ({np.std(values, ddof=1):.3f})".replace("(0.", "(.")


def most(full: bool) -> int:
    """The most runs of the page."""
    epsilons, seeds = (len(EPSILONS), len(runs.seeds(SEEDS))) if full else (1, 1)
    return epsilons * (len(GRID) + 2 * seeds) + len(MORE) * seeds + 2
