"""What a privacy budget costs in accuracy: MNIST at ten hospitals, noise shared in a study and each node's own.

Models are evaluated here, on MNIST's test set and without noise. That is no part of the jobs: a private job evaluates
on rows of its nodes, with noise and at a price.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
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
PLAIN: tuple[Mapping[str, float], ...] = ({"lr": 0.5}, {"lr": 1.0}, {"lr": 1.5})  # without noise and clip
LONG = 300  # rounds of other jobs, one seed, with the settings that are best for 100
ABOUT = (
    f"MNIST's 60,000 training rows at {NODES} hospitals, IID; logistic regression, FedSGD: {ROUNDS} rounds of one step "
    f"on all rows, delta {DELTA:g}, and one noisy evaluation in the budget. Shared: the hospitals are one block of a "
    "study, which assumes that one of them works with the server. Own: `aggregation=masked`, without a study. Accuracy "
    "on the 10,000 test rows, in percent, by this benchmark and without noise: that is no part of the job. Clip and "
    "learning rate of each row are the best of a small grid (the second table) on the last 10,000 training rows; the "
    "search itself is not paid for. Seeds deal the rows to hospitals. Noise has no seed: a run cannot be repeated to "
    "the last bit."
)


def settings(
    aggregation: str, epsilon: float | None, local: Mapping[str, float], rounds: int = ROUNDS
) -> dict[str, Any]:
    """The settings of a job; without epsilon it has no noise."""
    return {
        "model": "logreg",
        "rounds": rounds,
        "evaluate_every": rounds,
        "aggregation": aggregation,
        "classes": [*range(10)],
        "holdout": 0.0,
        **local,
        **({} if epsilon is None else {"epsilon": epsilon, "delta": DELTA}),
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
    return {"history": [{"round": values["rounds"], "accuracy": found}]}


def searched(dataset: Dataset, values: Mapping[str, Any]) -> runs.Run:
    """The same steps without nodes, on all but the last training rows, evaluated on these; kept."""
    known = {"method": "search", "data": f"{dataset.name} {runs.digest(dataset)}", "validation": VALIDATION}
    return runs.kept_as(DOCUMENT, {**known, **values}, functools.partial(_search, dataset, values))


def _search(dataset: Dataset, values: Mapping[str, Any], _: object) -> dict[str, Any]:
    """A loop with the block's noise in floating point. The learning rate is for the mean, so fewer rows fit as well."""
    assert isinstance(dataset.rows, tuple)
    X, y = as_features(dataset.rows[0]), np.asarray(dataset.rows[1], np.int64)
    cut, plan = len(y) - VALIDATION, plan_of(values) if "clip" in values else None
    model = models.build({"name": "logreg", "features": X.shape[1], "classes": 10})
    assert model.size is not None
    rng = np.random.default_rng(0)
    w = model.init(rng)
    nodes_noise = NODES / (NODES - 1) if values["aggregation"] == SHARED else NODES  # variance of all nodes' together
    for _ in range(ROUNDS):
        if plan is None:
            mean = model.loss_and_gradient(w, X[:cut], y[:cut])[1]
        else:
            sigma = plan.noise * sensitivity(model.size, units.GRADIENT) * np.sqrt(nodes_noise)
            total = clipped_sum(model, w, X[:cut], y[:cut], plan.clip, units.GRADIENT)
            mean = (total + rng.normal(0, sigma, model.size)) * (plan.clip / units.GRADIENT / cut)
        w = (w - values["lr"] * mean).astype(np.float32)
    return {"history": [{"round": ROUNDS, "accuracy": accuracy(w, X[cut:], y[cut:])}]}


def _lines(dataset: Dataset, full: bool) -> Iterator[str]:
    cells = [(mode, epsilon) for mode in (SHARED, OWN) for epsilon in (TARGETS if full else (3.0,))]
    known = {cell: _accuracies(dataset, *cell, GRID) for cell in cells}
    plain = _accuracies(dataset, OWN, None, PLAIN)
    yield from tables.head(
        "noise", "epsilon", "by PLD", "rounds", "noise of a sum over C", "clip", "lr", "accuracy by seed", "target"
    )
    for rounds in (ROUNDS, LONG) if full else (ROUNDS,):
        for cell in cells if rounds == ROUNDS else cells[: len(TARGETS)]:  # all, or those that share noise
            mode, epsilon = cell
            values = settings(*cell, _best(known[cell], GRID), rounds)
            plan = plan_of(values)
            bound, by_pld = accountant.epsilon([plan], DELTA), accountant.epsilon_pld(plan, DELTA)
            begun = (NAMES[mode], f"{bound:.3f}", f"{by_pld:.3f}", rounds, f"{plan.noise:.2f}", plan.clip, values["lr"])
            target = f"{TARGETS[epsilon]:.1f}" if mode == SHARED else None
            most = len(SEEDS) if full and rounds == ROUNDS else 1
            yield tables.trained(begun, functools.partial(_by_seed, dataset, values, most, target), 2)
    local = _best(plain, PLAIN)
    without = ("none, not clipped", None, None, ROUNDS, None, None, local["lr"])
    most = len(SEEDS) if full else 1
    yield tables.trained(without, functools.partial(_by_seed, dataset, settings(OWN, None, local), most, None), 2)
    yield ""
    yield "Accuracy of the search, in percent, on the last 10,000 training rows after steps on the others (one run a"
    yield f"cell, {ROUNDS} steps):"
    yield ""
    yield from tables.head("noise", "epsilon", *(f"clip {local['clip']:g}, lr {local['lr']:g}" for local in GRID))
    for (mode, epsilon), found in known.items():
        yield tables.row(NAMES[mode], f"{epsilon:g}", *(f"{a:.1f}" for a in found))
    yield ""
    shown = ", ".join(f"{a:.1f} with lr {local['lr']:g}" for a, local in zip(plain, PLAIN, strict=True))
    yield f"Without noise and not clipped: {shown}."


def _accuracies(
    dataset: Dataset, aggregation: str, epsilon: float | None, grid: Sequence[Mapping[str, float]]
) -> Sequence[float]:
    """What the search finds for each setting of a grid, in percent."""
    found = (searched(dataset, settings(aggregation, epsilon, local)) for local in grid)
    return [100 * tables.accuracies(run)[-1] for run in found]


def _best(found: Sequence[float], grid: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    return grid[int(np.argmax(found))]


def _by_seed(dataset: Dataset, values: Mapping[str, Any], most: int, target: str | None) -> tuple[str, str | None]:
    found = [trained(dataset, values, seed) for seed in runs.seeds(SEEDS[:most])]
    return ", ".join(f"{100 * tables.accuracies(run)[-1]:.1f}" for run in found), target


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the tables."""
    cells, seeds = (2 * len(TARGETS), len(runs.seeds(SEEDS))) if full else (2, 1)
    most = cells * len(GRID) + len(PLAIN) + (cells + 1) * seeds + (len(TARGETS) if full else 0)
    about = tables.Page(DOCUMENT, "What a privacy budget costs in accuracy", full, ABOUT)
    tables.page(about, _lines(dataset, full), most)
