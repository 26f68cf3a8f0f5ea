"""This package's methods on FLamby's data, one node for each hospital with its training rows.

Models are evaluated here, on FLamby's test rows, from the weights of the result.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks import runs, tables
from benchmarks.flamby import emulated, theirs
from benchmarks.flamby.data import Task, concordance
from v6_federated.base.errors import SafeError
from v6_federated.data.source import Source
from v6_workbench import registry
from v6_workbench.reporting.prediction import predict
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import OnRound
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.mock_node import Database

DOCUMENT = "flamby"
LABEL = "target"
Score = Callable[[Mapping[str, Any], Database], np.ndarray]
TIME, EVENT = "T", "E"
# FLamby's name: method, its settings on top of the common ones, and why it is not compared with FLamby's number
SAME: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "FedAvg": ("fedavg", {}, ""),
    "FedProx": ("fedavg", {}, ""),
    "SCAFFOLD": ("scaffold", {}, "FLamby's SCAFFOLD is another algorithm"),
    "Cyclic": ("fedavg", {"schedule": "cyclic"}, "FLamby's Cyclic passes no model on"),
    "FedAdagrad": ("fedavg", {"server_optimizer": "adagrad"}, ""),
    "FedAdam": ("fedavg", {"server_optimizer": "adam"}, ""),
    "FedYogi": ("fedavg", {"server_optimizer": "yogi"}, ""),
}


REPEATED = ("x27", "x28", "x34", "x35", "x36", "x37", "x38")  # the same as other columns
CERTAIN = ("x29", "x3")  # without them, no level has no events, or all, at every region
SURVIVAL: Mapping[str, Any] = {"model": "linear", "loss": "cox", "label": TIME, "event": EVENT}


@dataclass(frozen=True)
class Hospitals:
    """Rows of hospitals, prepared in one way.

    Attributes:
        name: the way, which names kept runs.
        training, test: rows of each hospital.
    """

    name: str
    training: Sequence[Database]
    test: Sequence[Database]

    @property
    def labels(self) -> list[np.ndarray]:
        """The classes, 0 or 1, of each hospital's test rows."""
        return [np.asarray(rows[LABEL] if isinstance(rows, pd.DataFrame) else rows[1], int) for rows in self.test]


def as_flamby(task: Task) -> Hospitals:
    """FLamby's columns, scaled by each hospital's own training rows."""
    training = [(site.X.numpy(), site.y.numpy().astype(int)) for site in task.sites]
    return Hospitals(
        "flamby", training, [(site.X_test.numpy(), site.y_test.numpy().astype(int)) for site in task.sites]
    )


def survival(task: Task) -> Hospitals:
    """FLamby's columns as they are, with times and events."""

    def table(X: torch.Tensor, y: torch.Tensor) -> pd.DataFrame:
        columns = {f"x{i}": column for i, column in enumerate(X.numpy().T)}
        return pd.DataFrame({**columns, EVENT: y[:, 0].numpy().astype(int), TIME: y[:, 1].numpy()})

    training = [table(site.X, site.y) for site in task.sites]
    return Hospitals("flamby", training, [table(site.X_test, site.y_test) for site in task.sites])


def trained(
    dataset: Dataset,
    hospitals: Hospitals,
    method: str,
    values: Mapping[str, Any],
    seed: int,
    environment: Mapping[str, str] | None = None,
    start: np.ndarray | None = None,
    each: bool = False,
    score: Score | None = None,
    **known: Any,
) -> runs.Run:
    """Run a job; kept. Its history has a row for each hospital: the accuracy and log-loss on its test rows.

    Args:
        dataset: the data.
        hospitals: their rows.
        method: the method.
        values: its settings.
        seed: of the job.
        environment: the operators' policies.
        start: the first model (d,), torch's from the seed; None: the package's own, which is zero for a linear model.
        each: whether the history has a row for each test row instead.
        score: measures test rows in place of ``scored``.
        known: what else distinguishes the run.

    Returns:
        The run.
    """
    settings = {
        "method": method,
        "data": f"{dataset.name} {runs.text_digest(dataset)}",
        "prepared": hospitals.name,
        **({"environment": dict(environment)} if environment else {}),
        **({} if start is None else {"started": "torch"}),
        **known,
        **values,
        "seed": seed,
    }

    def train(on_round: Any) -> dict[str, Any]:
        result = fitted(hospitals, method, values, seed, environment, start, on_round)
        found = [(score or scored)(result, test) for test in hospitals.test]
        rows = np.concatenate(found) if each else np.array([part.mean(axis=0) for part in found])
        return {"history": [{"round": values["rounds"], "accuracy": a, "loss": b} for a, b in rows.tolist()]}

    return runs.kept_as(DOCUMENT, settings, train)


def fitted(
    hospitals: Hospitals,
    method: str,
    values: Mapping[str, Any],
    seed: int,
    environment: Mapping[str, str] | None = None,
    start: np.ndarray | None = None,
    on_round: OnRound | None = None,
) -> Mapping[str, Any]:
    """Run a job, one node for each hospital; not kept. For its arguments see ``trained``.

    Raises:
        SafeError: the job ended early, for example because a node refused a round.
    """
    databases = dict(enumerate(hospitals.training, start=1))
    quiet = on_round or (lambda row: None)
    with MockNetwork(registry.package_of(method).__name__, databases, environment=environment, on_round=quiet) as nodes:
        began = {}
        if start is not None:
            began["start_from"] = str(nodes.folder / "start.npz")
            np.savez(began["start_from"], weights=start)
        result = nodes.run(**values, **began, seed=seed)
    if result.get("stopped"):
        raise SafeError(f"{method} ended early: {result['stopped']}")
    return result


def scored(result: Mapping[str, Any], test: Database) -> np.ndarray:
    """Whether each test row is classified right, and its log-loss (n, 2)."""
    if isinstance(test, pd.DataFrame):
        y, source = test[LABEL].to_numpy(int), Source(table=test.drop(columns=LABEL))
    else:
        y, source = test[1], Source(X=test[0])
    found, _ = predict(result, source)
    p = np.where(y == 1, found["probability=1"], found["probability=0"])
    return np.column_stack([found["prediction"].to_numpy(int) == y, -np.log(np.maximum(p, 1e-12))])


def concordant(result: Mapping[str, Any], test: Database) -> np.ndarray:
    """The C-index of test rows, and no loss (1, 2)."""
    assert isinstance(test, pd.DataFrame)
    found, _ = predict(result, Source(table=test.drop(columns=[TIME, EVENT])))
    y = torch.tensor(test[[EVENT, TIME]].to_numpy(np.float32))
    return np.array([[concordance(torch.tensor(found["prediction"].to_numpy()), y), 0.0]])


def same_settings(task: Task, name: str) -> tuple[str, dict[str, Any]]:
    """A method and its settings, which are FLamby's for the strategy of that name."""
    rates, (method, own, _) = theirs.RATES[task.key][name], SAME[name]
    label = {"model": "logreg", "classes": [0, 1]} if task.key == "heart" else SURVIVAL
    if name == "Cyclic":  # about as many visits as FLamby's rounds
        own = {**own, "rounds": -(-task.rounds // len(task.sites))}
    values = {
        **label,
        "rounds": task.rounds,
        "local_steps": theirs.UPDATES,
        "batch_size": task.batch_size,
        "lr": rates.local,
        "holdout": 0.0,
        **({"proximal_mu": rates.mu} if rates.mu else {}),
        **({"server_lr": rates.server} if "server_optimizer" in own else {}),
        **own,
    }
    return method, {**values, "evaluate_every": values["rounds"]}


def lines(dataset: Dataset, task: Task, full: bool) -> Iterator[tables.Line]:
    """Our methods with FLamby's settings beside its results, and of survival exact regression."""
    here = emulated.seeds(full)
    yield ""
    yield "## This package with FLamby's settings"
    yield ""
    visits = -(-task.rounds // len(task.sites))
    yield (
        "Rows, scaling, rounds, steps, batches and rates are FLamby's. The nodes draw their own minibatches. Models "
        "start at torch's random weights, as FLamby's, and in one column at zero, as this package's do. Nodes have "
        f"the profile `trusting`: others refuse batches of {task.batch_size}. The cycle takes {visits} "
        f"round{'s' if visits > 1 else ''} of {len(task.sites)} visits; FLamby's has {task.rounds}."
    )
    yield ""
    columns = ("strategy", "FLamby", "ours", "verdict", "ours from zero")
    yield from tables.head(*columns, *(f"{n}: FLamby, ours" for n in task.names))
    for name, (_, _, why) in SAME.items():
        if not full and name not in emulated.PARTLY:
            continue
        published = theirs.published(task.key, name)
        try:
            ours, zero = (accuracies(dataset, task, name, here, zero) for zero in (False, True))
        except runs.NotRun:
            yield tables.row(name, emulated.spread(published.mean(1)), tables.NOT_RUN_YET)
            continue
        sites, mean = emulated.compared(task, name, published, ours, "this package", why)
        yield from sites
        yield mean
        yield tables.row(
            name,
            emulated.spread(published.mean(1)),
            emulated.spread(ours.mean(1)),
            f"{mean.verdict}; {sum(site.verdict == 'near' for site in sites)} of {len(sites)} hospitals",
            emulated.spread(zero.mean(1)),
            *emulated.pairs(published, ours),
        )
    if task.key == "tcga":
        yield from exact(dataset, task)


def exact(dataset: Dataset, task: Task) -> Iterator[str]:
    """Cox's model fitted exactly, beside its training by minibatches."""
    hospitals = survival(task)
    values = {
        "label": TIME,
        "event": EVENT,
        "ties": "breslow",
        "rounds": 25,
        "features": [c for c in hospitals.training[0] if c not in (*REPEATED, *CERTAIN, TIME, EVENT)],
    }
    yield ""
    yield "## Exact regression"
    yield ""
    yield (
        "`cox`, stratified by region, as the loss of each region's own rows is. It refuses columns that say what "
        f"others say, or that predict events with certainty: {len(REPEATED)} and {len(CERTAIN)} of the 39 are left "
        "out, in the order in which it names them. Training by minibatches needs no such care, as it ends long before "
        "coefficients have grown without end."
    )
    yield ""
    yield from tables.head("method", "rounds at most", "mean of regions", *task.names)

    def cells() -> Sequence[str]:
        run = trained(dataset, hospitals, "cox", values, emulated.SEEDS[0], score=concordant)
        found = tables.accuracies(run)
        return emulated.spread([float(np.mean(found))]), *(f"{c:.3f}".removeprefix("0") for c in found)

    yield tables.trained(("exact", "25"), cells, 1 + len(task.names))


def accuracies(dataset: Dataset, task: Task, name: str, seeds: Sequence[int], zero: bool) -> np.ndarray:
    """Seeds by hospitals; the first model is zero, or FLamby's."""
    of_classes = task.key == "heart"
    hospitals, score = (as_flamby(task), None) if of_classes else (survival(task), concordant)
    method, values = same_settings(task, name)
    found = []
    for seed in seeds:
        start = None if zero else theirs.first_model(task, seed).numpy()
        run = trained(dataset, hospitals, method, values, seed, start=start, score=score)
        found.append(tables.accuracies(run))
    return np.array(found)


def most(full: bool) -> int:
    """The most runs of the tables."""
    return 2 * sum(full or name in emulated.PARTLY for name in SAME) * len(emulated.seeds(full)) + 1
