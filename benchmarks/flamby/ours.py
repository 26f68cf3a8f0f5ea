"""This package's methods on FLamby's heart disease data, one node for each hospital with its training rows.

Models are evaluated here, on FLamby's test rows, from the weights of the result.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import runs, tables
from benchmarks.flamby import emulated, theirs
from benchmarks.flamby.data import Task
from v6_federated.data.source import Source
from v6_workbench import registry
from v6_workbench.reporting.prediction import predict
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.mock import MockNetwork
from v6_workbench.simulation.mock_node import Database

DOCUMENT = "flamby"
LABEL = "target"
# FLamby's name: method, its settings on top of the common ones, and why it is not compared with FLamby's number
SAME: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "FedAvg": ("fedavg", {}, ""),
    "FedProx": ("fedavg", {}, ""),
    "SCAFFOLD": ("scaffold", {}, "FLamby's SCAFFOLD is another algorithm"),
    "Cyclic": ("fedavg", {"schedule": "cyclic", "rounds": 4}, "FLamby's Cyclic passes no model on"),
    "FedAdagrad": ("fedavg", {"server_optimizer": "adagrad"}, ""),
    "FedAdam": ("fedavg", {"server_optimizer": "adam"}, ""),
    "FedYogi": ("fedavg", {"server_optimizer": "yogi"}, ""),
}


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


def trained(
    dataset: Dataset,
    hospitals: Hospitals,
    method: str,
    values: Mapping[str, Any],
    seed: int,
    environment: Mapping[str, str] | None = None,
    start: np.ndarray | None = None,
    each: bool = False,
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
        databases = dict(enumerate(hospitals.training, start=1))
        quiet = on_round or (lambda row: None)
        package = registry.package_of(method).__name__
        with MockNetwork(package, databases, environment=environment, on_round=quiet) as network:
            began = {}
            if start is not None:
                began["start_from"] = str(network.folder / "start.npz")
                np.savez(began["start_from"], weights=start)
            result = network.run(**values, **began, seed=seed)
        found = [scored(result, test) for test in hospitals.test]
        rows = np.concatenate(found) if each else np.array([part.mean(axis=0) for part in found])
        return {"history": [{"round": values["rounds"], "accuracy": a, "loss": b} for a, b in rows.tolist()]}

    return runs.kept_as(DOCUMENT, settings, train)


def scored(result: Mapping[str, Any], test: Database) -> np.ndarray:
    """Whether each test row is classified right, and its log-loss (n, 2)."""
    if isinstance(test, pd.DataFrame):
        y, source = test[LABEL].to_numpy(int), Source(table=test.drop(columns=LABEL))
    else:
        y, source = test[1], Source(X=test[0])
    found, _ = predict(result, source)
    p = np.where(y == 1, found["probability=1"], found["probability=0"])
    return np.column_stack([found["prediction"].to_numpy(int) == y, -np.log(np.maximum(p, 1e-12))])


def same_settings(task: Task, name: str) -> tuple[str, dict[str, Any]]:
    """A method and its settings, which are FLamby's for the strategy of that name."""
    rates, (method, own, _) = theirs.RATES[task.key][name], SAME[name]
    values = {
        "model": "logreg",
        "rounds": task.rounds,
        "local_steps": theirs.UPDATES,
        "batch_size": task.batch_size,
        "lr": rates.local,
        "holdout": 0.0,
        "classes": [0, 1],
        **({"proximal_mu": rates.mu} if rates.mu else {}),
        **({"server_lr": rates.server} if "server_optimizer" in own else {}),
        **own,
    }
    return method, {**values, "evaluate_every": values["rounds"]}


def lines(dataset: Dataset, task: Task, full: bool) -> Iterator[tables.Line]:
    """Our methods with FLamby's settings beside its results."""
    here = emulated.seeds(full)
    yield ""
    yield "## This package with FLamby's settings"
    yield ""
    yield (
        "Rows, scaling, rounds, steps, batches and rates are FLamby's. The nodes draw their own minibatches. Models "
        "start at torch's random weights, as FLamby's, and in one column at zero, as this package's do. Nodes have "
        "the profile `trusting`: others refuse batches of 4. The cycle takes 4 rounds of 4 visits; FLamby's has 15."
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


def accuracies(dataset: Dataset, task: Task, name: str, seeds: Sequence[int], zero: bool) -> np.ndarray:
    """Seeds by hospitals; the first model is zero, or FLamby's."""
    hospitals, (method, values) = as_flamby(task), same_settings(task, name)
    found = []
    for seed in seeds:
        start = None if zero else theirs.first_model(task, seed).numpy()
        found.append(tables.accuracies(trained(dataset, hospitals, method, values, seed, start=start)))
    return np.array(found)


def most(full: bool) -> int:
    """The most runs of the table."""
    return 2 * sum(full or name in emulated.PARTLY for name in SAME) * len(emulated.seeds(full))
