"""What one dishonest node of ten costs while it stays within the bounds of ``docs/dishonest-nodes.md``.

No document has this table. The liar follows the method, sees the other nodes' updates of the round (which a real node
cannot), and changes its own before central reads it. A lie that breaks a bound ends the job: ``tests/central``.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import runs, tables
from v6_federated.base.randomness import generator
from v6_federated.messages import codec
from v6_workbench.simulation import datasets, dealing
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.datasets import Dataset
from v6_workbench.simulation.mock import MockNetwork

DOCUMENT = "poisoning"
NODES, LIAR = 10, 10  # the liar is the last, whose answer is read after those of the others
SEEDS = (1, 2, 3)
LOCAL: dict[str, Any] = {"lr": 0.1, "epochs": 5, "batch_size": 10}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # name, method, settings
    "FedAvg": ("fedavg", LOCAL),
    "FedAvg, median": ("fedavg", {**LOCAL, "aggregate": "median"}),
    "FedAvg, trimmed mean": ("fedavg", {**LOCAL, "aggregate": "trimmed"}),
    "FedAvg, geometric median": ("fedavg", {**LOCAL, "aggregate": "geometric"}),
    "SCAFFOLD": ("scaffold", LOCAL),
    "FSVRG": ("fsvrg", {}),
    "LoAdaBoost": ("loadaboost", LOCAL),
    "Co-Learning": ("colearning", LOCAL),
    "dynamic averaging, divergence": ("dynavg", LOCAL),
    "dynamic averaging, SVD": ("dynavg", {**LOCAL, "protocol": "svd"}),
    "dynamic averaging, loss": ("dynavg", {**LOCAL, "protocol": "loss"}),
    "CO-OP": ("coop", LOCAL),
    "boosted trees": ("gbdt", {"model": "trees", "mode": "cyclic", "min_rows_leaf": 10}),
}
HONEST, FLIPPED, RANDOM, DRIVEN = "all honest", "sign flipped", "random", "towards a wrong model"
LIES = (HONEST, FLIPPED, RANDOM, DRIVEN)
WITHIN = 9.9  # times the median of the others' largest updates; above 10 the job ends
FAR = 10.0  # the wrong model is this many times as sure of itself as the one that was trained
OVERHEAD = ("evaluate", "forget")


class Liar:
    """What becomes of each call of a job in which organization ``LIAR`` lies.

    Args:
        lie: one of ``LIES``.
        wrong: the model (d,) that ``DRIVEN`` drives the others to.
        seed: of the random directions.
        asynchronous: whether central compares a model with the newest one, not with the one that its node was sent.
    """

    def __init__(self, lie: str, wrong: np.ndarray, seed: int, asynchronous: bool = False) -> None:
        self._lie, self._wrong, self._rng = lie, wrong, generator(seed, "liar")
        self._asynchronous = asynchronous
        self._newest: np.ndarray | None = None  # the model that was sent last, to whomever
        self._norms: dict[tuple[str, str], dict[int, float]] = {}  # of each node's largest update so far

    def __call__(self, organization: int, message: Mapping[str, Any]) -> CallOutcome:
        """What becomes of one call."""
        if message["method"] in OVERHEAD or not message["kwargs"]["round"] or self._lie == HONEST:
            return CallOutcome(1.0)
        sent = codec.decode(message["kwargs"].get("arrays", codec.encode({})))
        self._newest = sent.get("weights", self._newest)
        reference = None if self._asynchronous else sent.get("weights")

        # of dynamic averaging by a schedule, changes for each round of passes are compared
        rounds = message["kwargs"]["round"] - message["kwargs"].get("since", message["kwargs"]["round"] - 1)

        def alter(answer: dict[str, Any]) -> dict[str, Any]:
            return self._altered(answer, organization, message["method"], reference, rounds)

        return CallOutcome(1.0, alter=alter)

    def _altered(
        self, answer: dict[str, Any], organization: int, function: str, reference: np.ndarray | None, rounds: int
    ) -> dict[str, Any]:
        found = codec.decode(answer["arrays"]) if "arrays" in answer else {}
        start = self._newest if reference is None else reference  # a node that goes on from its own model is sent none
        if function == "local_update" and organization == LIAR and self._lie in (RANDOM, DRIVEN) and not found:
            assert start is not None
            answer, found = {**answer, "violation": True}, {"weights": start + 0}  # it speaks in every round
        changed = {}
        for name, array in found.items():
            leaves = array[:, 0] < 0 if name == "trees" else None
            base = start if name == "weights" and start is not None else np.zeros_like(array)
            update = array[leaves, 1] if leaves is not None else (array - base) / np.float32(rounds)
            size = float(np.linalg.norm(update)) / (np.sqrt(len(update)) if leaves is not None else 1.0)
            norms = self._norms.setdefault((function, name), {})
            if organization != LIAR:
                norms[organization] = max(size, norms.get(organization, 0.0))
                continue
            lied = self._update(name, update, base, float(np.median([*norms.values()])) if norms else size)
            changed[name] = array + 0 if leaves is not None else base + np.float32(rounds) * lied
            if leaves is not None:
                changed[name][leaves, 1] = lied
        return {**answer, "arrays": codec.encode(changed)} if changed else answer

    def _update(self, name: str, update: np.ndarray, base: np.ndarray, median: float) -> np.ndarray:
        """What the liar sends in place of its update."""
        if self._lie == FLIPPED:
            return -update
        if name == "trees":
            wrong = -update if self._lie == DRIVEN else self._rng.standard_normal(update.shape)
            size = float(np.linalg.norm(wrong)) / np.sqrt(len(wrong))
        else:
            towards = {"gradient": base - self._wrong, "dy": self._wrong}.get(name, self._wrong - base)
            wrong = towards if self._lie == DRIVEN else self._rng.standard_normal(update.shape)
            size = float(np.linalg.norm(wrong))
        return (wrong * (WITHIN * median / size if size else 0.0)).astype(np.float32)


def run(method: str, nodes: Mapping[int, pd.DataFrame], values: Mapping[str, Any], liar: Liar) -> dict[str, Any]:
    """The result of a job."""
    network = MockNetwork(f"v6_{method}", nodes, environment={}, on_round=lambda row: None, outcomes=liar)
    with network:
        result: dict[str, Any] = network.run(**values)
    return result


@functools.cache
def dealt(seed: int) -> dict[int, pd.DataFrame]:
    """Digits, dealt at random to the nodes."""
    parts = dealing.deal(datasets.load("digits"), "iid", NODES, seed, None)
    return {k: rows for k, rows in enumerate(parts.values(), start=1) if isinstance(rows, pd.DataFrame)}


@functools.cache
def wrong_model(seed: int, rounds: int) -> np.ndarray:
    """A model that takes each digit for the next one, (d,)."""
    nodes = {k: rows.assign(target=(rows["target"] + 1) % 10) for k, rows in dealt(seed).items()}
    values = {**LOCAL, "rounds": rounds, "seed": seed, "classes": [*range(10)]}
    result = run("fedavg", nodes, values, Liar(HONEST, np.zeros(1), seed))
    return FAR * codec.decode(result["weights"])["weights"]


def accuracy(method: str, settings: Mapping[str, Any], lie: str, seed: int, rounds: int) -> tuple[float, str]:
    """The accuracy of the last model on the rows that all nodes hold out, and why the job ended, if it was not over."""
    values = {"rounds": rounds, "seed": seed, "classes": [*range(10)], **settings}
    named = {"method": method, "data": "digits", "nodes": NODES, "partition": "iid", "lie": lie, **values}

    def train(on_round: object) -> dict[str, Any]:
        result = run(method, dealt(seed), values, Liar(lie, wrong_model(seed, rounds), seed, method == "coop"))
        return {**result, "stopped": "", "ended": result.get("stopped", "")}

    history = runs.kept_as(DOCUMENT, named, train).history
    last = [row["accuracy"] for row in history if row["accuracy"] is not None][-1]
    return float(last), "" if len(history) == rounds else f"ended after round {len(history)}"


def lines(full: bool) -> Iterator[str]:
    """The table."""
    rounds = 20 if full else 4
    yield from tables.head("method", *LIES)
    for name, (method, settings) in METHODS.items():
        cells = []
        for lie in LIES:
            found: Sequence[tuple[float, str]] = [
                accuracy(method, settings, lie, seed, rounds) for seed in (runs.seeds(SEEDS) if full else SEEDS[:1])
            ]
            why = {reason for _, reason in found if reason}
            mean = f"{100 * np.mean([a for a, _ in found]):.1f}"
            spread = f" ({100 * min(found)[0]:.1f} to {100 * max(found)[0]:.1f})" if len(found) > 1 else ""
            cells.append(mean + spread + "".join(f"; {reason}" for reason in sorted(why)))
        yield tables.row(name, *cells)


def main(dataset: Dataset | None, full: bool) -> None:
    """Print and keep the table."""
    about = (
        f"Accuracy in percent on held-out rows of digits after {20 if full else 4} rounds of logistic regression, and "
        f"of boosted trees, over {NODES} equal nodes. One of them always lies: it flips the sign of its update, "
        f"sends random numbers with {WITHIN:g} times the median norm, or with the same norm drives "
        "towards a model that takes each digit for the next one (trees: turns its leaves the other way). Mean, lowest "
        "and highest of the seeds. Boosted trees are those of `mode=cyclic`. No document has this table."
    )
    most = len(METHODS) * len(LIES) * (len(runs.seeds(SEEDS)) if full else 1)
    page = tables.Page(DOCUMENT, "What a dishonest node costs", full, about, data="")
    tables.page(page, lines(full), most)
