"""What a privacy budget costs in accuracy: MNIST at ten hospitals, noise shared in a study and each node's own.

Models are evaluated here, on MNIST's test set and without noise. That is no part of the jobs: a private job evaluates
on rows of its nodes, with noise and at a price.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks import runs, tables
from v6_federated import codec, models
from v6_federated.central import privacy
from v6_federated.data.reading import as_features
from v6_federated.models.clipping import clipped_sum, sensitivity
from v6_federated.privacy.dp import accountant, units
from v6_federated.privacy.dp.plan import Plan
from v6_workbench import registry
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

DOCUMENT = "private_utility"
NODES, ROUNDS, DELTA, SEEDS = 10, 100, 1e-5, (1, 2, 3)
SHARED, OWN = "pinned", "masked"  # in a study nodes share the noise of a sum; otherwise each adds all of it
NAMES = {SHARED: "shared in a study", OWN: "each node's own"}
TARGETS = {1.0: 91.0, 3.0: 91.5, 8.0: 91.5}  # of shared noise, in percent, set before anything was run
VALIDATION = 10_000  # the last training rows
GRID: tuple[Mapping[str, float], ...] = ({"clip": 2.0, "lr": 6.0}, {"clip": 4.0, "lr": 2.5}, {"clip": 2.0, "lr": 4.0})
ABOUT = (
    f"MNIST's 60,000 training rows at {NODES} hospitals, IID; logistic regression, FedSGD: {ROUNDS} rounds of one step "
    f"on all rows, delta {DELTA:g}, and one noisy evaluation in the budget. Shared: the hospitals are one block of a "
    "study, which assumes that one of them works with the server. Own: `aggregation=masked`, without a study. Accuracy "
    "on the 10,000 test rows, in percent, by this benchmark and without noise: that is no part of the job. Clip and "
    "learning rate of each row are the best of a small grid (the second table) on the last 10,000 training rows; the "
    "search itself is not paid for. Seeds deal the rows to hospitals. Noise has no seed: a run cannot be repeated to "
    "the last bit."
)


def settings(aggregation: str, epsilon: float | None, local: Mapping[str, float]) -> dict[str, Any]:
    """The settings of a job; without epsilon it is neither clipped nor noisy."""
    noise = {"epsilon": epsilon, "delta": DELTA}
    return {
        "model": "logreg",
        "rounds": ROUNDS,
        "evaluate_every": ROUNDS,
        "aggregation": aggregation,
        "classes": [*range(10)],
        "holdout": 0.0,
        **({name: value for name, value in local.items() if name != "clip"} if epsilon is None else {**local, **noise}),
    }


def plan_of(values: Mapping[str, Any]) -> Plan:
    """What a job asks of a node in all."""
    plan = privacy.plan_of(registry.validate("fedavg", dict(values)))
    assert plan is not None
    return plan


def accuracy(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> float:
    """Of a model on rows, without noise."""
    model = models.build({"name": "logreg", "features": X.shape[1], "classes": 10})
    return float((model.predict(w, X) == y).mean())


def trained(dataset: Dataset, values: Mapping[str, Any], seed: int) -> runs.Run:
    """A job on mock nodes, evaluated on the test set; kept."""
    known = {"method": "fedavg", "data": f"{dataset.name} {runs.digest(dataset)}", "nodes": NODES, "seed": seed}
    return runs.kept_as(DOCUMENT, {**known, **values}, functools.partial(_job, dataset, values, seed))


def _job(dataset: Dataset, values: Mapping[str, Any], seed: int, on_round: Any) -> dict[str, Any]:
    assert dataset.test is not None
    study = StudyPlan(NODES) if values["aggregation"] == SHARED else None
    databases = Experiment(dataset, NODES, "iid", seed, seed).deal()
    with MockNetwork("v6_fedavg", databases, study=study, on_round=on_round or (lambda row: None)) as network:
        result = network.run(**values, seed=seed)
    if "epsilon" in values:
        assert result["privacy"]["noise_shared_in_a_block"] is (values["aggregation"] == SHARED)
    found = accuracy(codec.decode(result["weights"])["weights"], as_features(dataset.test[0]), dataset.test[1])
    return {"history": [{"round": ROUNDS, "accuracy": found}]}


def searched(dataset: Dataset, values: Mapping[str, Any]) -> runs.Run:
    """The same steps without nodes, on all but the last training rows, evaluated on these; kept."""
    known = {"method": "search", "data": f"{dataset.name} {runs.digest(dataset)}", "validation": VALIDATION}
    return runs.kept_as(DOCUMENT, {**known, **values}, functools.partial(_search, dataset, values))


def _search(dataset: Dataset, values: Mapping[str, Any], _: object) -> dict[str, Any]:
    """A loop with the block's noise in floating point. The learning rate is for the mean, so fewer rows fit as well."""
    assert isinstance(dataset.rows, tuple)
    X, y = as_features(dataset.rows[0]), np.asarray(dataset.rows[1], np.int64)
    cut, plan = len(y) - VALIDATION, plan_of(values)
    model = models.build({"name": "logreg", "features": X.shape[1], "classes": 10})
    assert model.size is not None
    rng = np.random.default_rng(0)
    w = model.init(rng)
    nodes_noise = NODES / (NODES - 1) if values["aggregation"] == SHARED else NODES  # variance of all nodes' together
    sigma = plan.noise * sensitivity(model.size, units.GRADIENT) * np.sqrt(nodes_noise)
    for _ in range(ROUNDS):
        total = clipped_sum(model, w, X[:cut], y[:cut], plan.clip, units.GRADIENT) + rng.normal(0, sigma, model.size)
        w = (w - values["lr"] * total * (plan.clip / units.GRADIENT / cut)).astype(np.float32)
    return {"history": [{"round": ROUNDS, "accuracy": accuracy(w, X[cut:], y[cut:])}]}


def _lines(dataset: Dataset, full: bool) -> Iterator[str]:
    cells = [(mode, epsilon) for mode in (SHARED, OWN) for epsilon in (TARGETS if full else (3.0,))]
    known = {
        cell: [100 * tables.accuracies(searched(dataset, settings(*cell, local)))[-1] for local in GRID]
        for cell in cells
    }
    yield from tables.head(
        "noise", "epsilon", "by PLD", "noise of a sum over C", "clip", "lr", "accuracy by seed", "target"
    )
    for cell in cells:
        mode, epsilon = cell
        local = GRID[int(np.argmax(known[cell]))]
        values = settings(*cell, local)
        plan = plan_of(values)
        bound, by_pld = accountant.epsilon([plan], DELTA), accountant.epsilon_pld(plan, DELTA)
        target = f"{TARGETS[epsilon]:.1f}" if mode == SHARED else None
        begun = (NAMES[mode], f"{bound:.3f}", f"{by_pld:.3f}", f"{plan.noise:.2f}", *local.values())
        yield tables.trained(begun, functools.partial(_by_seed, dataset, values, full, target), 2)
    best = int(np.argmax(known[SHARED, max(epsilon for _, epsilon in cells)]))
    values = settings(OWN, None, GRID[best])
    without = ("none, and no clip", None, None, None, None, values["lr"])
    yield tables.trained(without, functools.partial(_by_seed, dataset, values, full, None), 2)
    yield ""
    yield "Accuracy of the search, in percent, on the last 10,000 training rows after steps on the others (one run a"
    yield "cell):"
    yield ""
    yield from tables.head("noise", "epsilon", *(_named(local) for local in GRID))
    for (mode, epsilon), found in known.items():
        yield tables.row(NAMES[mode], f"{epsilon:g}", *(f"{a:.1f}" for a in found))


def _by_seed(dataset: Dataset, values: Mapping[str, Any], full: bool, target: str | None) -> tuple[str, str | None]:
    found = [trained(dataset, values, seed) for seed in (runs.seeds(SEEDS) if full else SEEDS[:1])]
    return ", ".join(f"{100 * tables.accuracies(run)[-1]:.1f}" for run in found), target


def _named(local: Mapping[str, float]) -> str:
    return f"clip {local['clip']:g}, lr {local['lr']:g}"


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables."""
    cells = 2 * len(TARGETS) if full else 2
    most = cells * len(GRID) + (cells + 1) * len(runs.seeds(SEEDS) if full else SEEDS[:1])
    about = tables.Page(DOCUMENT, "What a privacy budget costs in accuracy", full, ABOUT)
    tables.page(about, _lines(dataset, full), most)
