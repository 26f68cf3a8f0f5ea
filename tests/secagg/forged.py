"""A central that sends what it likes: it calls the nodes of a mock network one by one."""

import importlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from helpers import JOB
from masked_jobs import nodes

from v6_federated.masks import summing
from v6_federated.masks.agreement import Entry
from v6_federated.masks.summing import Sums
from v6_federated.messages import codec
from v6_federated.messages.job import Job
from v6_federated.models import layouts
from v6_federated.models.layouts import Asked
from v6_workbench.simulation import mock_node
from v6_workbench.simulation.mock import TRUSTING, MockNetwork, StudyPlan
from v6_workbench.simulation.mock_node import MockNode
from v6_workbench.simulation.row_store import RowStore

UNIT = (32, 3)  # width and e of means
LOCAL = {"lr": 0.1}


@dataclass
class Central:
    """A central of FedAvg, or another method, without honesty.

    Attributes:
        network: its nodes.
        mode: the job's aggregation.
        job: what it says about the job.
        entries: the hellos by organization.
        tags: the confirmations by sender and receiver.
        rows: how many rows all have.
        asked: the last sum.
        layout: what it is a sum of.
    """

    network: MockNetwork
    mode: str
    job: dict[str, Any] = field(default_factory=dict)
    entries: dict[int, dict[str, Any]] = field(default_factory=dict)
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    rows: int = 0
    asked: Any = None
    layout: Any = None

    def __post_init__(self) -> None:
        members = [*self.network.nodes]
        self.job = {**JOB, "participants": members, "rounds": 5, "aggregation": self.mode}
        self.rows = sum(k_rows(node) for node in self.network.nodes.values())

    def call(self, k: int, function: str, *, round_: int = 1, job: dict | None = None, **arguments: Any) -> Any:
        """A node's answer; the text of its refusal if it refuses, which its audit log has and which tells of no row."""
        client = self.network.client()
        kwargs = {"job": {**self.job, **(job or {})}, "round": round_, **arguments}
        task = client.task.create(json.loads(json.dumps({"method": function, "kwargs": kwargs})), [k])
        found = client.wait_for_results(task["id"])
        if function == "forget":  # it reads nothing, and is not logged
            return found[0]
        line = self.audit(k, last=1)[0]
        assert line["function"] == function and line["round"] == round_
        if found:
            assert "refused" not in line
            return found[0]
        log = client.run.from_task(task["id"])[0]["log"]
        reason = log.partition(f"organization {k}: ")[2]
        assert reason and line["refused"] == reason, log
        assert not betrays(log, self.network.nodes[k])
        return reason

    def audit(self, k: int, last: int = 0) -> list[dict[str, Any]]:
        """A node's audit log, or its last lines."""
        file = Path(self.network.nodes[k].environment["HOSPITAL_DATABASE_URI"]) / "audit.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()[-last:]]

    def hello(self, *members: int) -> None:
        """Greet nodes."""
        for k in members or self.network.nodes:
            said = self.call(k, "describe", round_=0, raw=bool(self.job["data"].get("categories")))
            assert not isinstance(said, str), said
            self.entries[k] = said["entry"]

    def confirm(self, k: int, roster: Sequence[dict[str, Any]] | None = None) -> Any:
        """Have a node confirm a roster; None is the honest one. The tags are noted."""
        said = self.call(k, "confirm", round_=0, roster=[*self.entries.values()] if roster is None else [*roster])
        if not isinstance(said, str):
            self.tags[self.entries[k]["S"]] = said["tags"]
        return said

    def agree(self) -> "Central":
        """Hello and confirm with all nodes."""
        self.hello()
        for k in self.network.nodes:
            assert not isinstance(said := self.confirm(k), str), said
        return self

    def sums(
        self,
        seq: int,
        function: str = "count_rows",
        *,
        rows: int | None = None,
        unit: tuple[int, int] = UNIT,
        job: dict | None = None,
        arrays: dict[str, Any] | None = None,
        evaluate: str | None = None,
        bands: int = 0,
        **settings: Any,
    ) -> Sums:
        """The sum that a task asks for: what the function declares, means in one unit."""
        declaration = getattr(importlib.import_module(f"v6_{self.job['method']}"), function).sums
        sent = codec.decode(arrays) if arrays else {}
        asked = Asked(Job.from_json({**self.job, **(job or {})}), settings, sent, bool(evaluate), bands)
        self.layout = layout = layouts.layout(declaration, asked)
        units = [unit for _ in layout.chosen]
        self.asked = Sums.of(layout, seq, 1, self.rows if rows is None else rows, units, self.tags)
        return self.asked

    def ask(self, k: int, function: str, seq: int, *, round_: int = 1, **arguments: Any) -> Any:
        """A node's masked answer to what the function declares."""
        sums = self.sums(seq, function, **arguments)
        more = {name: value for name, value in arguments.items() if name not in ("rows", "unit")}
        return self.call(k, function, round_=round_, sums=sums.to_json(), **more)

    def update(self, k: int, seq: int = 1, *, weights: Any = None, **arguments: Any) -> Any:
        """A node's masked update."""
        sent = {name: arguments.pop(name) for name in ("rows", "unit", "job", "round_") if name in arguments}
        arrays = codec.encode({"weights": np.zeros(5) if weights is None else np.asarray(weights, dtype=float)})
        return self.ask(k, "client_update", seq, local={**LOCAL, **arguments}, arrays=arrays, **sent)

    def opened(self, answers: Sequence[dict[str, Any]]) -> tuple[int, bool, dict, list]:
        """The number of nodes, whether some have failed, the sums, and the parts that have wrapped."""
        words = {}
        for bits in (32, 64):
            found = [codec.decode_words(a[f"y{bits}"], f"uint{bits}", self.asked.words(bits)) for a in answers]
            words[bits] = np.sum(found, axis=0, dtype=f"uint{bits}")
        return summing.decoded(self.asked, words, bytes.fromhex(answers[0]["T"]))


@contextmanager
def central(
    mode: str, folder: Path, K: int = 5, *, package: str = "v6_fedavg", size: int | None = 5, **options: Any
) -> Iterator[Central]:
    """A lying central and its K nodes; in the mode "pinned" these have accepted a study."""
    plan = StudyPlan(size) if mode == "pinned" else None
    options = {"environment": TRUSTING, **options}
    with MockNetwork(package, nodes(K), hospital_folder=folder, study=plan, **options) as network:
        yield Central(network, mode)


def other_key(entry: dict[str, Any], own: Any, S: Any = None) -> dict[str, Any]:
    """A node's entry with the key E of somebody else, or also S."""
    raw = own.public_key().public_bytes_raw()
    found = {**entry, "E": raw.hex()}
    if S is not None:
        found["S"] = S.public_key().public_bytes_raw().hex()
    assert Entry.from_json(found)
    return found


def table_of(node: MockNode) -> pd.DataFrame:
    """A node's table."""
    return mock_node.source_of(node.rows.open()).table


def k_rows(node: MockNode) -> int:
    """How many rows a node trains on in ``JOB``, which holds nothing out."""
    return len(table_of(node))


def change_table(network: MockNetwork, k: int) -> None:
    """Change one value of a node's table."""
    table = table_of(network.nodes[k]).copy()
    table.iloc[0, 0] += 1
    store = RowStore(network.folder / f"changed-{k}")
    network.nodes[k] = replace(network.nodes[k], rows=mock_node.stored(k, table, store))
    store.close()


def keep(folder: Path, at: Path) -> None:
    """A copy of a folder."""
    shutil.copytree(folder, at, dirs_exist_ok=True)


def roll_back(folder: Path, copy: Path) -> None:
    """Bring the copy back."""
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def betrays(text: str, node: MockNode) -> bool:
    """Whether a text holds a number of the node's rows, to four digits or more."""
    numbers = table_of(node).drop(columns="label", errors="ignore").select_dtypes("number").to_numpy(float).ravel()
    found = [float(n) for n in re.findall(r"-?\d+\.\d{3,}", text)]
    return any(np.abs(numbers - n).min() < 1e-3 for n in found)
