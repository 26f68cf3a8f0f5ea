"""What the profile ``careful`` costs: accuracy, AUC and loss of all methods beside the profile ``trusting``.

No document has these tables. The same rows, splits and seeds under both profiles; careful nodes shuffle by secrets of
their own and round what they count, so that a difference of a few rows is no difference of the models.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks import runs, tables
from v6_workbench.simulation import datasets
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

DOCUMENT = "careful"
PROFILES = ("trusting", "careful")
SEEDS = (1, 2, 3)
NODES = 5
LOCAL: dict[str, Any] = {"batch_size": 10, "preprocess": ["standardize"]}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # name, method, settings
    "FedAvg": ("fedavg", LOCAL),
    "SCAFFOLD": ("scaffold", LOCAL),
    "FSVRG": ("fsvrg", LOCAL),
    "LoAdaBoost": ("loadaboost", LOCAL),
    "Co-Learning": ("colearning", LOCAL),
    "dynamic averaging": ("dynavg", LOCAL),
    "CO-OP": ("coop", LOCAL),
    "boosted trees": ("gbdt", {"model": "trees", "mode": "cyclic"}),
}
MEASURES = {"accuracy": 3, "auc": 4, "loss": 3}  # and their decimals


def results(method: str, settings: Mapping[str, Any], data: str, profile: str, seed: int) -> dict[str, float]:
    """The measures of the last model on the rows that all nodes hold out."""
    environment = {"V6_FEDERATED_PROFILE": profile, "V6_FEDERATED_AGGREGATION": "plain"}
    experiment = Experiment(datasets.load(data), NODES, "iid", seed, seed, environment=environment)
    values = {"rounds": 20, "seed": seed, **settings}
    named = {"method": method, "data": data, "nodes": NODES, "partition": "iid", "profile": profile, **values}
    history = runs.kept_as(DOCUMENT, named, lambda on_round: experiment.federated(method, values, on_round)).history
    return {measure: history[-1][measure] for measure in MEASURES}


def lines(full: bool) -> Iterator[str]:
    """A table for each data set."""
    for data in ("breast-cancer", "digits"):
        yield ""
        yield f"{data}, {NODES} nodes, 20 rounds:"
        yield ""
        yield from tables.head("method, model", *(f"{m}, {p}" for m in MEASURES for p in PROFILES))
        models = {"logreg": METHODS, "fnn": {"FedAvg": METHODS["FedAvg"]}}
        for model, methods in models.items():
            for name, (method, settings) in methods.items():
                own = settings if "model" in settings else {**settings, "model": model}
                found = {
                    profile: [
                        results(method, own, data, profile, seed) for seed in (runs.seeds(SEEDS) if full else SEEDS[:1])
                    ]
                    for profile in PROFILES
                }
                cells = (
                    f"{np.mean([one[measure] for one in found[profile]]):.{decimals}f}"
                    for measure, decimals in MEASURES.items()
                    for profile in PROFILES
                )
                yield tables.row(f"{name}, {own['model']}", *cells)


def main(dataset: Dataset | None, full: bool) -> None:
    """Print and keep the tables."""
    about = (
        "Accuracy, AUC and loss on held-out rows, the mean of the seeds. At breast-cancer each node holds out 20 rows, "
        "whose counts a careful node rounds to multiples of 5. Boosted trees are those of `mode=cyclic`."
    )
    most = 2 * 2 * (len(METHODS) + 1) * (len(runs.seeds(SEEDS)) if full else 1)
    page = tables.Page(DOCUMENT, "What the profile careful costs", full, about, data="")
    tables.page(page, lines(full), most)
