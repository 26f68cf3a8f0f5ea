"""Jobs with noise on mock nodes, the search for their settings, and how well their models do on test rows."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from benchmarks import runs, tables
from benchmarks.private_utility import scattering
from v6_federated import codec, models
from v6_federated.central import noise_plan
from v6_federated.data.reading import as_features
from v6_federated.models.convolution import Convolution
from v6_federated.noise import units
from v6_federated.noise.clipping import clipped_sum, sensitivity
from v6_federated.noise.plan import Plan
from v6_workbench import registry
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.studies import StudyPlan

DOCUMENT = "private_utility"
NODES, DELTA = 10, 1e-5
VALIDATION = 6  # the last sixth of the training rows: 10,000 of 60,000
SHARED, OWN = "pinned", "masked"  # in a study nodes share the noise of a sum; otherwise each adds all of it
NAMES = {SHARED: "shared in a study", OWN: "each node's own"}
Local = Mapping[str, float]  # clip, lr and server_momentum


def cnn_opacus(features: int, classes: int) -> Convolution:
    """The network of Opacus's example on MNIST, with 26,010 parameters."""
    assert features == 784
    return Convolution(
        nn.Sequential(
            nn.Conv2d(1, 16, 8, stride=2, padding=3),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Flatten(),
            nn.Linear(512, 32),
            nn.ReLU(),
            nn.Linear(32, classes),
        ),
        28,
    )


models.register("cnn_opacus", cnn_opacus)  # known to nodes of this process only


@dataclass(frozen=True)
class Task:
    """What is trained, and in how many steps.

    Attributes:
        model: the model's name.
        rounds: rounds of one step each.
        sampling: probability of a row to take part in a step.
        scattered: whether rows are scattering features, instead of pixels.
    """

    model: str
    rounds: int
    sampling: float = 1.0
    scattered: bool = False


def settings(task: Task, aggregation: str, epsilon: float | None, local: Local) -> dict[str, Any]:
    """The settings of a job; without epsilon it has no noise."""
    return {
        "model": task.model,
        "rounds": task.rounds,
        "evaluate_every": task.rounds,
        "aggregation": aggregation,
        "classes": [*range(10)],
        "holdout": 0.0,
        **({} if task.sampling == 1 else {"sampling": task.sampling, "steps_per_epoch": 1}),
        **local,
        **({} if epsilon is None else {"epsilon": epsilon, "delta": DELTA}),
    }


@functools.cache
def _plan(items: tuple[tuple[str, Any], ...]) -> Plan | None:
    return noise_plan.plan_of(registry.validate("fedavg", dict(items)))


def plan_of(values: Mapping[str, Any]) -> Plan | None:
    """What a job asks of a node in all; None if it has no noise."""
    return _plan(tuple((name, value) for name, value in values.items() if name != "classes"))


@functools.lru_cache(maxsize=1)  # features take a gigabyte
def rows_of(dataset: Dataset, scattered: bool) -> Dataset:
    """The rows of a task."""
    assert isinstance(dataset.rows, tuple) and dataset.test is not None
    if not scattered:
        return dataset
    (X, y), (X_test, y_test) = dataset.rows, dataset.test
    return Dataset(f"{dataset.name} scattered", (scattering.features(X), y), (scattering.features(X_test), y_test))


def _known(method: str, dataset: Dataset, task: Task, values: Mapping[str, Any]) -> dict[str, Any]:
    """What distinguishes a run; its noise too, which follows from the accountant."""
    plan = plan_of(values)
    return {
        "method": method,
        "data": f"{dataset.name} {runs.digest(dataset)}",
        **({"input": "scattering"} if task.scattered else {}),
        **({} if plan is None else {"plan_noise": plan.noise}),
        **values,
    }


def trained(dataset: Dataset, task: Task, values: Mapping[str, Any], seed: int) -> runs.Run:
    """A job on mock nodes, evaluated on the test set; kept."""
    known = {**_known("fedavg", dataset, task, values), "nodes": NODES, "seed": seed}
    return runs.kept_as(DOCUMENT, known, functools.partial(_job, dataset, task, values, seed))


def _job(dataset: Dataset, task: Task, values: Mapping[str, Any], seed: int, on_round: Any) -> dict[str, Any]:
    rows = rows_of(dataset, task.scattered)
    assert rows.test is not None
    study = StudyPlan(NODES) if values["aggregation"] == SHARED else None
    databases = Experiment(rows, NODES, "iid", seed, seed).deal()
    with MockNetwork("v6_fedavg", databases, study=study, on_round=on_round or (lambda row: None)) as network:
        result = network.run(**values, seed=seed)
    if "epsilon" in values:
        assert result["privacy"]["noise_shared_in_a_block"] is (values["aggregation"] == SHARED)
    found = accuracy(task.model, codec.decode(result["weights"])["weights"], as_features(rows.test[0]), rows.test[1])
    return {"history": [{"round": values["rounds"], "accuracy": found}]}


def accuracy(name: str, w: np.ndarray, X: np.ndarray, y: np.ndarray) -> float:
    """Of a model on rows, without noise."""
    model = models.build({"name": name, "features": X.shape[1], "classes": 10})
    return float((model.predict(w, X) == y).mean())


def searched(dataset: Dataset, task: Task, values: Mapping[str, Any]) -> runs.Run:
    """The same steps without nodes, on all but the last training rows, evaluated on these; kept."""
    known = {**_known("search", dataset, task, values), "validation": len(dataset) // VALIDATION}
    return runs.kept_as(DOCUMENT, known, functools.partial(_search, dataset, task, values))


def _search(dataset: Dataset, task: Task, values: Mapping[str, Any], _: object) -> dict[str, Any]:
    rows = rows_of(dataset, task.scattered).rows
    assert isinstance(rows, tuple)
    X, y = as_features(rows[0]), np.asarray(rows[1], np.int64)
    cut = len(y) - len(y) // VALIDATION
    if (plan := plan_of(values)) is not None:  # a mean is to have as much noise as with all rows
        plan = replace(plan, noise=plan.noise * cut / len(y))
    w = _centrally(task, X[:cut], y[:cut], values, plan, seed=0)
    return {"history": [{"round": task.rounds, "accuracy": accuracy(task.model, w, X[cut:], y[cut:])}]}


def pooled(dataset: Dataset, task: Task, values: Mapping[str, Any], seed: int) -> runs.Run:
    """The same steps as of a job on pooled rows, without nodes, evaluated on the test set; kept."""
    known = {**_known("pooled", dataset, task, values), "seed": seed}
    return runs.kept_as(DOCUMENT, known, functools.partial(_pooled, dataset, task, values, seed))


def _pooled(dataset: Dataset, task: Task, values: Mapping[str, Any], seed: int, _: object) -> dict[str, Any]:
    found = rows_of(dataset, task.scattered)
    assert isinstance(found.rows, tuple) and found.test is not None
    (X, y), (X_test, y_test) = found.rows, found.test
    w = _centrally(task, as_features(X), np.asarray(y, np.int64), values, plan_of(values), seed)
    return {"history": [{"round": task.rounds, "accuracy": accuracy(task.model, w, as_features(X_test), y_test)}]}


def _centrally(
    task: Task, X: np.ndarray, y: np.ndarray, values: Mapping[str, Any], plan: Plan | None, seed: int
) -> np.ndarray:
    model = models.build({"name": task.model, "features": X.shape[1], "classes": 10})
    noises = NODES / (NODES - 1) if values["aggregation"] == SHARED else NODES
    return descended(model, X, y, values, plan, noises, np.random.default_rng(seed))


def descended(
    model: Any,
    X: np.ndarray,
    y: np.ndarray,
    values: Mapping[str, Any],
    plan: Plan | None,
    noises: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """The model after a job's steps on pooled rows, with noise in floating point.

    Args:
        model: the model.
        X: rows (n, features).
        y: their classes (n,).
        values: the job's settings.
        plan: what the job asks of a node in all; None if it has no noise.
        noises: the variance of all nodes' noise together, over the plan's.
        rng: draws the first model, rows and noise.
    """
    w, v, n = model.init(rng), np.zeros(model.size, np.float32), len(y)
    for _ in range(values["rounds"]):
        if plan is None:
            mean = model.loss_and_gradient(w, X, y)[1]
        else:
            step: Any = slice(None) if plan.rate == 1 else np.flatnonzero(rng.random(n) < plan.rate)
            sigma = plan.noise * sensitivity(model.size, units.GRADIENT) * np.sqrt(noises)
            total = clipped_sum(model, w, X[step], y[step], plan.clip, units.GRADIENT)
            mean = (total + rng.normal(0, sigma, model.size)) * (plan.clip / units.GRADIENT / (plan.rate * n))
        v = values["server_momentum"] * v + values["lr"] * mean
        w = (w - v).astype(np.float32)
    return np.asarray(w)


def found_by_search(
    dataset: Dataset, task: Task, aggregation: str, epsilon: float | None, grid: Sequence[Local]
) -> list[float]:
    """What the search finds for each setting of a grid, in percent."""
    found = (searched(dataset, task, settings(task, aggregation, epsilon, local)) for local in grid)
    return [100 * tables.accuracies(run)[-1] for run in found]


def by_seed(measured: Callable[[int], runs.Run], seeds: Sequence[int]) -> str:
    """The accuracy of each seed, in percent."""
    found = [measured(seed) for seed in runs.seeds(seeds)]
    return ", ".join(f"{100 * tables.accuracies(run)[-1]:.1f}" for run in found)
