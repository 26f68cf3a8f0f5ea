"""Whole jobs on a real vantage6 network of four hospitals: seconds from ``submit`` to coefficients, and to trees."""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import tables
from benchmarks.glm import HEART
from benchmarks.network import result_of
from v6_federated.messages import codec
from v6_workbench.cli import main as command_line
from v6_workbench.network import images, local
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.experiments import Experiment

NAME, LABEL = "jobs", "target"
MASKED: Mapping[str, Any] = {"aggregation": "masked"}
COLUMNS = {**MASKED, "label": LABEL, "features": HEART, "preprocess": ["impute:median", "standardize"], "holdout": 0.0}
FEDAVG: Mapping[str, Any] = {**COLUMNS, "model": "logreg", "epochs": 1, "evaluate_every": 1000}  # FedSGD
RATES = (1.0, 4.0)
CLOSE, MOST = 0.001, 1000  # standard errors from those of glm; rounds
SENT = 10  # rounds of FedAvg that are sent
TREES: Sequence[Mapping[str, Any]] = (
    {"mode": "random", "rounds": 10, **MASKED},
    {"mode": "histogram", "rounds": 2, **MASKED},
    {"mode": "bagging", "rounds": 10},  # a tree is one hospital's: no sum hides it
    {"mode": "cyclic", "rounds": 10},
)
ABOUT = (
    "A vantage6 server and four nodes on this machine, with the rows of the four hospitals of UCI's heart disease "
    f"data. Seconds are from sending a task until its result is there; images were there before. {len(HEART)} columns, "
    "medians in place of missing values, standardized. Answers are masked, except those of bagging and cyclic, where a "
    "tree is one hospital's own. FedAvg is one step on all rows a round "
    f"(FedSGD). Rounds until all of its coefficients are within {CLOSE:g} standard errors of glm's are "
    f"counted on simulated nodes, which have the same bits; {SENT} rounds are sent, and the seconds of so many rounds "
    "follow from theirs."
)


def main(dataset: Dataset, full: bool) -> None:
    """Print and keep the seconds."""
    rounds = {lr: rounds_of_fedavg(dataset, lr) for lr in RATES}
    for method in ("glm", "fedavg", "gbdt"):
        images.build_method(images.listed()[f"v6-{method}"])
    assert isinstance(dataset.rows, pd.DataFrame)
    with tempfile.TemporaryDirectory() as folder:  # the network copies each hospital's rows
        file = Path(folder) / f"{dataset.name}.csv"
        dataset.rows.to_csv(file, index=False)
        up = ["network", "up", "--name", NAME, "--data", str(file), "--partition", "column:hospital"]
        up += ["--node-env", "V6_FEDERATED_AGGREGATION=plain"]
        if command_line.main(up):
            raise SystemExit(1)
    try:
        about = tables.Page(
            "network_jobs",
            "Whole jobs on a real network",
            True,
            ABOUT,
            "heart_disease",
            "heart_disease.csv",
            timed=True,
        )
        tables.page(about, lines(local.load(NAME), rounds))
    finally:
        local.down(NAME)


def rounds_of_fedavg(dataset: Dataset, lr: float) -> int:
    """Rounds until all coefficients of FedAvg are close to those of glm, on simulated nodes."""
    experiment = Experiment(dataset, None, "column:hospital")
    rows = experiment.federated("glm", {**COLUMNS, "rounds": 20})["coefficients"]
    named = {row["name"]: row for row in rows}
    exact, error = (np.array([named[column][key] for column in HEART]) for key in ("estimate", "std_error"))
    rounds = 1
    while rounds <= MOST:
        result = experiment.federated("fedavg", {**FEDAVG, "lr": lr, "rounds": rounds})
        scale = codec.decode(result["data"]["preprocess"][-1]["fitted"])["scale"]
        w = codec.decode(result["weights"])["weights"][: len(HEART)] / scale
        if np.abs((w - exact) / error).max() <= CLOSE:
            return rounds
        rounds = int(np.ceil(rounds * 1.1))
    raise SystemExit(f"FedAvg is not as precise after {MOST} rounds")


def lines(found: local.Network, rounds: Mapping[float, int]) -> Iterator[str]:
    """A line for each job."""
    yield from tables.head("job", "rounds", "requests", "seconds in all", "seconds a round", "what it has then")
    seconds, result = timed(found, "v6-glm", {**COLUMNS, "rounds": 20})
    n = len(result["history"])
    yield tables.row("glm", n, n, f"{seconds:.0f}", f"{seconds / n:.1f}", "exact coefficients and their errors")
    seconds, result = timed(found, "v6-fedavg", {**FEDAVG, "lr": RATES[-1], "rounds": SENT})
    each = float(np.mean([row["seconds"] for row in result["history"][1:]]))
    yield tables.row("fedavg", SENT, SENT, f"{seconds:.0f}", f"{each:.1f}", "nothing yet")
    what = f"coefficients within {CLOSE:g} standard errors, and no errors"
    for lr, r in rounds.items():
        least = seconds + (r - SENT) * each
        yield tables.row(f"fedavg, lr={lr:g}, computed", r, r, f"{least:.0f}", f"{each:.1f}", what)
    for settings in TREES:
        values = {"label": LABEL, "exclude": ["num", "ca"], "evaluate_every": 1000, **settings}
        seconds, result = timed(found, "v6-gbdt", values)
        n, history = settings["rounds"], result["history"]
        asked = n * 6 if settings["mode"] == "histogram" else n
        each = float(np.mean([row["seconds"] for row in history[1:]]))
        about = f"{history[-1]['trees']} trees, accuracy {result['final']['accuracy']:.3f}"
        yield tables.row(f"gbdt, {settings['mode']}", n, asked, f"{seconds:.0f}", f"{each:.1f}", about)


def timed(found: local.Network, image: str, values: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    """Seconds from sending a task until its result is there, and the result."""
    start = time.monotonic()
    result = result_of(found, image, {**values, "seed": 1})
    return time.monotonic() - start, result
