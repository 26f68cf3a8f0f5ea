"""A dishonest researcher: sends tasks that no honest one would, and compares what comes back with the true table.

The researcher calls the functions that the methods export, on the mock network, with a task as vantage6 delivers it:
any arguments, any job. The attack never reads what lies inside a node. Only ``found`` and its like look at the true
table, to count what an attack has really recovered; so do the attacks on a person whom the researcher knows already.
"""

import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd

from v6_federated.messages import codec
from v6_workbench.simulation import datasets, dealing
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork

TARGET, LABEL = 1, "target"  # the hospital that is attacked; the label's column
NAME, RARE, FLAG = "village", "Kleinstadt", "treated abroad"  # columns of which one patient has a value alone
TOLERANCE = 0.01  # standard deviations by which any value of a recovered row may be wrong

Tables = dict[int, pd.DataFrame]


class Refused(Exception):
    """A node refused a task; the text is its one line."""


@dataclass(frozen=True)
class Outcome:
    """What an attack brought.

    Attributes:
        recovered: how many of what it looked for it really recovered.
        of: how many there were.
        unit: what they are, for example ``"rows"``.
        tasks: requests to nodes that it took.
        claimed: how many it says that it recovered; the others are wrong.
        error: the largest error of a recovered value, in standard deviations of its column; None without values.
        refused: what the node said when it refused, if it did.
        note: what else is known, such as an AUC.
    """

    recovered: int
    of: int
    unit: str
    tasks: int
    claimed: int = 0
    error: float | None = None
    refused: str = ""
    note: str = ""


@dataclass
class Answer:
    """A node's answer: its arrays, and its other values."""

    arrays: Mapping[str, np.ndarray]
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]


@dataclass
class Researcher:
    """Someone who may send tasks.

    Attributes:
        tables: the hospitals' tables by organization.
        profile: the nodes' privacy profile.
        small: whether an attack should do little, as a test.
        tasks: requests to nodes so far.
        refusal: the last refusal.
    """

    tables: Tables
    profile: str
    small: bool = False
    tasks: int = 0
    refusal: str = ""
    _networks: dict[str, MockNetwork] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "Researcher":
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="v6-attacks-")))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    # ---- tasks

    def network(self, package: str) -> MockNetwork:
        """The mock nodes with a method's image; limits that a hospital counts are counted for all images together."""
        if package not in self._networks:
            self._networks[package] = self._stack.enter_context(
                MockNetwork(
                    package,
                    self.tables,
                    environment={"V6_FEDERATED_PROFILE": self.profile, "V6_FEDERATED_AGGREGATION": "plain"},
                    hospital_folder=None if self.profile == "trusting" else self._folder,
                    outcomes=self._count,
                    on_round=lambda row: None,
                )
            )
        return self._networks[package]

    def _count(self, organization: int, input_: Mapping[str, Any]) -> CallOutcome:
        self.tasks += 1
        return CallOutcome()

    def central(self, package: str, **settings: Any) -> dict[str, Any]:
        """Run a method as a task of the whole job."""
        try:
            return self.network(package).run(**settings)
        except Exception as error:  # whatever it is, the job is over
            self.refusal = " ".join(str(error).split())
            raise Refused(self.refusal) from None

    def ask(
        self,
        package: str,
        function: str,
        *,
        data: Mapping[str, Any] | None = None,
        model: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
        job: Mapping[str, Any] | None = None,
        round_: int = 1,
        **settings: Any,
    ) -> Answer:
        """Send the target a task of one function, under a job of its own."""
        spec: dict[str, Any] = {
            "label": LABEL,
            "features": self.features,
            "classes": [0, 1],
            "holdout": 0.0,
            "preprocess": [],
        }
        spec |= data or {}
        classes = 1 if spec.get("regression") else len(spec["classes"] or [])
        whole = {
            "method": package.removeprefix("v6_"),
            "key": uuid.uuid4().hex,
            "seed": 0,
            "participants": sorted(self.tables),
            "evaluators": [],
            "rounds": 1,
            "model": model and {"features": len(spec["features"]), "classes": classes, **model},
            "minimum_rows": None,
            "precision": "float64",
            "data": spec,
            **(job or {}),
        }
        kwargs = {"job": whole, "round": round_, **settings}
        if arrays is not None:
            kwargs["arrays"] = codec.encode(arrays, "float64")
        kwargs = orjson.loads(orjson.dumps(kwargs, option=orjson.OPT_SERIALIZE_NUMPY))
        client = self.network(package).client()
        task = client.task.create({"method": function, "kwargs": kwargs}, [TARGET])
        results = client.wait_for_results(task["id"])
        if not results:
            self.refusal = " ".join((client.run.from_task(task["id"])[0]["log"] or "").split())
            raise Refused(self.refusal)
        values = results[0]
        return Answer(codec.decode(values["arrays"]) if "arrays" in values else {}, values)

    # ---- what an attacker knows of the data without any trick

    @property
    def features(self) -> list[str]:
        """The columns that are used as features: they are no secret."""
        return [c for c in self.tables[TARGET].columns if c != LABEL and self.tables[TARGET][c].dtype.kind in "fi"]

    def moments(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Mean and deviation of each column (1 if 0), and the number of rows: what ``standardize`` asks for."""
        answer = self.ask("v6_fedavg", "fit_step", statistic="moments")
        deviation = np.sqrt(answer["squares"] / answer.values["n"])
        return codec.whole(answer.arrays, "mean"), np.where(deviation > 0, deviation, 1), answer.values["n"]

    def finest(self) -> int:
        """The column with the most values, which anybody guesses: the one of continuous measurements."""
        return max(range(len(self.features)), key=lambda i: len(np.unique(self.truth[:, i])))

    # ---- what is true

    @property
    def truth(self) -> np.ndarray:
        """The target's rows (n, d)."""
        return self.tables[TARGET][self.features].to_numpy(np.float64)

    def found(self, claims: Sequence[np.ndarray] | np.ndarray, unit: str = "rows", **more: Any) -> Outcome:
        """Compare claimed rows with the true ones: a row counts if all of its values are within the tolerance."""
        truth = self.truth
        number, error = matched(np.asarray(claims).reshape(-1, truth.shape[1]), truth, truth.std(axis=0))
        return Outcome(number, len(truth), unit, self.tasks, len(claims), error, self.last_words(number), **more)

    def found_values(self, claims: Mapping[str, Sequence[float]], of: int | None = None) -> Outcome:
        """Compare claimed values of columns with the true ones."""
        number, error, total = 0, 0.0, 0
        for column, values in claims.items():
            true = self.tables[TARGET][[column]].to_numpy(np.float64)
            some, largest = matched(np.asarray(values, np.float64).reshape(-1, 1), true, true.std(axis=0))
            number, error, total = number + some, max(error, largest or 0.0), total + len(true)
        claimed = sum(map(len, claims.values()))
        return Outcome(
            number, of or total, "values", self.tasks, claimed, error if number else None, self.last_words(number)
        )

    def last_words(self, recovered: int) -> str:
        """The refusal that ended an attack, without its prefix; nothing if the attack worked all the same."""
        return "" if recovered else self.refusal.rpartition(f"organization {TARGET}: ")[2]


def matched(claims: np.ndarray, truth: np.ndarray, scale: np.ndarray) -> tuple[int, float | None]:
    """How many true rows are claimed, each once, and the largest error among them in units of ``scale``."""
    errors, taken = list[float](), set[int]()
    for claim in claims:
        distance = np.abs((truth - claim) / np.where(scale > 0, scale, 1)).max(axis=1)
        for i in np.argsort(distance)[:5]:
            if distance[i] > TOLERANCE:
                break
            if i not in taken:
                taken.add(int(i))
                errors.append(float(distance[i]))
                break
    return len(taken), max(errors, default=None)


def hospitals(data: str = "breast-cancer", rows: int | None = None) -> Tables:
    """Four hospitals with rows of a table of scikit-learn's, dealt at random; the first is the target.

    Args:
        data: "breast-cancer"; "digits", whose labels are odd and even; or "rare", the first with two columns more.
        rows: rows of all hospitals together; None means all.
    """
    dataset = datasets.load("breast-cancer" if data == "rare" else data)
    table = dataset.rows
    assert isinstance(table, pd.DataFrame)
    if data == "digits":  # two classes, so that few rows are enough for a label
        table = table.assign(**{LABEL: table[LABEL] % 2})
    if rows is not None:
        table = table.iloc[np.random.default_rng(0).permutation(len(table))[:rows]]
    dealt = dealing.deal(datasets.Dataset(data, table.reset_index(drop=True)), "iid", 4, 1, None)
    tables = {int(name): part for name, part in dealt.items() if isinstance(part, pd.DataFrame)}
    return _with_rare(tables) if data == "rare" else tables


def _with_rare(tables: Tables) -> Tables:
    """One patient of the target has a village, and a flag, that nobody else has."""
    for part in tables.values():
        part.insert(0, NAME, np.resize(np.array(["Aldorf", "Bedorf", "Cedorf"], dtype=object), len(part)))
        part.insert(1, FLAG, 0)
    tables[TARGET].loc[5, NAME] = RARE
    tables[TARGET].loc[5, FLAG] = 1
    return tables
