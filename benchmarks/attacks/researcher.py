"""A dishonest researcher: sends tasks that no honest one would, and compares what comes back with the true table.

The researcher calls the functions that the methods export, on the mock network, with a task as vantage6 delivers it:
any arguments, any job. The attack never reads what lies inside a node. Only ``found`` and its like look at the true
table, to count what an attack has really recovered; so do the attacks on a person whom the researcher knows already.
"""

import hashlib
import tempfile
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
from scipy.stats import binom

from benchmarks.attacks import transport
from benchmarks.attacks.transport import Agreed, Failed, NotASum, Refused
from v6_federated.masks.summands import FIRST, OF_MEANS
from v6_federated.masks.summing import Sums
from v6_federated.messages import codec
from v6_federated.noise import accountant, bounded, units
from v6_federated.noise.plan import Plan
from v6_federated.rules.policy import Policy
from v6_federated.rules.schema import Column, Schema
from v6_workbench.simulation import datasets, dealing
from v6_workbench.simulation.call_outcomes import CallOutcome
from v6_workbench.simulation.mock import MockNetwork, StudyPlan

__all__ = ["Failed", "NotASum", "Refused"]

TARGET, LABEL = 1, "target"  # the hospital that is attacked; the label's column
NAME, RARE, FLAG = "village", "Kleinstadt", "treated abroad"  # columns of which one patient has a value alone
NOISE_ALONE = "the nodes add noise alone, since the job's plan is used up or does not cover what is asked"
DELTA = 1e-5  # of the budgets
TOLERANCE = 0.01  # standard deviations by which any value of a recovered row may be wrong
OF_A_VALUE = 0.001  # the same of a single value, of which many lie close to each other
ASIDE = np.array([*range(-10, 0), *range(1, 11)]) * 5 * OF_A_VALUE  # where claims are moved to see what chance finds
BY_CHANCE = 0.001  # how probable it may be that chance finds as many

PRODUCTS = (64, 16)  # e in which sums of products are asked for: up to 2^71, and to 2^-40

Tables = dict[int, pd.DataFrame]


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
        own: how many of what was recovered are the target's, if the answers are about more hospitals.
        chance: how many as many claims nearby find that know nothing more exactly.
    """

    recovered: int
    of: int
    unit: str
    tasks: int
    claimed: int = 0
    error: float | None = None
    refused: str = ""
    note: str = ""
    own: int | None = None
    chance: float = 0.0

    @property
    def brought(self) -> bool:
        """Whether it recovered more than chance would."""
        share = self.chance / max(self.claimed, 1)
        return bool(self.recovered) and float(binom.sf(self.recovered - 1, self.claimed, share)) < BY_CHANCE


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
        column: what the nodes' operators have chosen: "trusting"; "careful" with plain answers; "masked", the same
            limits and no study, where the researcher invents all participants but the target; "pinned", the same
            limits and a study, in whose block are the target and all other hospitals; "private 8" and "private 1", a
            study with a schema and a budget of so much epsilon.
        colluding: hospitals that tell the researcher all that they know.
        small: whether an attack should do little, as a test.
        tasks: requests to nodes so far.
        refusal: the last refusal.
        failed: whether some nodes could not compute their part of the last sum.
        plan: what the researcher reserves of a budget: all of it, for as many steps and evaluations as the attack asks.
        spent: whether nodes have refused because the budget is used up.
    """

    tables: Tables
    column: str
    small: bool = False
    colluding: Sequence[int] = ()
    tasks: int = 0
    refusal: str = ""
    failed: bool = False
    plan: Plan | None = None
    spent: bool = False
    _networks: dict[str, MockNetwork] = field(default_factory=dict)
    _agreed: dict[tuple[str, str | None, str], Agreed] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "Researcher":
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="v6-attacks-")))
        for k in self.tables:  # secrets that nodes would draw; the attacks do not know them, and runs can be repeated
            self.hospital(k).mkdir()
            (self.hospital(k) / "secret").write_bytes(hashlib.sha256(f"hospital {k}".encode()).digest())
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
                    environment=self.environment,
                    hospital_folder=None if self.column == "trusting" else self._folder,
                    study=StudyPlan(schema=self.schema if self.epsilon else None) if self.pinned else None,
                    outcomes=self._count,
                    on_round=lambda row: None,
                )
            )
        return self._networks[package]

    @property
    def environment(self) -> dict[str, str]:
        """The nodes' limits."""
        if self.epsilon:
            whole = f"{self.epsilon:g}"
            budget = {"V6_FEDERATED_EPSILON": whole, "V6_FEDERATED_EPSILON_PER_JOB": whole}
            return {"V6_FEDERATED_PROFILE": "private", **budget, "V6_FEDERATED_DELTA": f"{DELTA:g}"}
        if self.column in ("masked", "pinned"):
            return {"V6_FEDERATED_PROFILE": "careful"}  # which masks answers, and pins where a study lies
        return {"V6_FEDERATED_PROFILE": self.column, "V6_FEDERATED_AGGREGATION": "plain"}

    @property
    def epsilon(self) -> float:
        """The hospitals' budget; 0 if they have none."""
        return float(self.column.partition("private ")[2] or 0)

    @property
    def pinned(self) -> bool:
        """Whether the hospitals have accepted a study."""
        return self.column == "pinned" or self.epsilon > 0

    @property
    def mode(self) -> str:
        """The aggregation of the researcher's jobs."""
        return "pinned" if self.pinned else "masked" if self.column == "masked" else "plain"

    @property
    def schema(self) -> Schema:
        """What operators can declare without a look at rows: zero, and a round number that no value is above."""
        every = pd.concat(self.tables.values())
        columns = [
            Column(c, "number", 0, _rounded_up(float(every[c].max())))
            if every[c].dtype.kind in "fi"
            else Column(c, "words", levels=tuple(sorted(every[c].unique())))
            for c in every.columns
            if c != LABEL
        ]
        return Schema(tuple(columns), LABEL, (0, 1))

    def reserve(self, steps: int = 0, evaluations: int = 0, clip: float = 1.0, statistics: int = 0) -> None:
        """Plan to spend the whole budget on so many noisy sums. Without a budget, nothing is reserved."""
        if self.epsilon:
            asked = Plan(clip=clip, steps=steps, evaluations=evaluations, statistics=statistics)
            self.plan = accountant.calibrated(asked, self.epsilon, DELTA)

    @property
    def block(self) -> list[int]:
        """The hospitals whose rows an answer is about."""
        return [k for k in sorted(self.tables) if k not in self.colluding] if self.pinned else [TARGET]

    @property
    def members(self) -> list[int]:
        """The hospitals that take part in the researcher's jobs."""
        return sorted(self.tables) if self.pinned else [TARGET]

    def hospital(self, organization: int) -> Path:
        """A hospital's own folder."""
        return self._folder / f"node-{organization}"

    def _count(self, organization: int, input_: Mapping[str, Any]) -> CallOutcome:
        self.tasks += 1
        return CallOutcome()

    def central(self, package: str, **settings: Any) -> dict[str, Any]:
        """Run a method as a task of the whole job; under a budget, as one that spends all of it."""
        if self.epsilon:
            settings = {name: value for name, value in settings.items() if name != "batch_size"}
            settings |= {"clip": 1.0, "epsilon": self.epsilon, "delta": DELTA, "preprocess": ["scale"]}
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
        """Send the target a task of one function, under a job of its own.

        Where answers are masked, the same function is asked for as a sum: over the target's block, or over the target
        and participants that do not exist.

        Raises:
            Refused: a node refuses, or the function has no sum.
        """
        spec = self.spec | dict(data or {})
        classes = 1 if spec.get("regression") else len(spec["classes"] or [])
        sizes = model and {"features": len(spec["features"]), "classes": classes, **model}
        whole = self.job(package, **{"model": sizes, "data": spec, **(job or {})})
        if self.mode != "plain":
            return self._sum(package, function, whole, round_, dict(arrays or {}), settings, (job or {}).get("key"))
        kwargs: dict[str, Any] = {"job": whole, "round": round_, **settings}
        if arrays is not None:
            kwargs["arrays"] = codec.encode(arrays, "float64")
        values = self.send(package, function, [TARGET], **kwargs)[TARGET]
        return Answer(codec.decode(values["arrays"]) if "arrays" in values else {}, values)

    @property
    def spec(self) -> dict[str, Any]:
        """The columns of an ordinary job."""
        return {"label": LABEL, "features": self.features, "classes": [0, 1], "holdout": 0.0, "preprocess": []}

    def job(self, package: str, **parts: Any) -> dict[str, Any]:
        """A job as central would send it, but for some parts."""
        held_out = parts.get("data", self.spec)["holdout"]
        return {
            "method": package.removeprefix("v6_"),
            "key": uuid.uuid4().hex,
            "seed": 0,
            "participants": sorted(self.tables),
            "evaluators": [],
            "rounds": 1,
            "model": None,
            "minimum_rows": None,
            "precision": "float64",
            "data": self.spec,
            "privacy": None if self.plan is None else replace(self.plan, holdout=held_out).to_json(),
            **parts,
        }

    def send(self, package: str, function: str, organizations: Sequence[int], **kwargs: Any) -> dict[int, Any]:
        """Send one task to nodes.

        Returns:
            The answers by organization.

        Raises:
            Refused: a node refused it.
        """
        kwargs = orjson.loads(orjson.dumps(kwargs, option=orjson.OPT_SERIALIZE_NUMPY))
        client = self.network(package).client()
        task = client.task.create({"method": function, "kwargs": kwargs}, [*organizations])
        results = client.wait_for_results(task["id"])
        runs = client.run.from_task(task["id"])
        if lines := [run["log"] or "" for run in runs if run["status"] != "completed"]:
            self.refusal = " ".join(lines[0].split())
            raise Refused(self.refusal)
        return dict(zip(organizations, results, strict=True))

    # ---- sums

    def agreed(self, package: str, key: str | None = None, job: Mapping[str, Any] | None = None) -> Agreed:
        """A job under which the nodes answer masked: one with this key, or the last about these rows and columns."""
        about = self.job(package) if job is None else job
        told = orjson.dumps({**about["data"], "preprocess": []}, option=orjson.OPT_SORT_KEYS).decode()
        found = self._agreed.get((package, key, told))
        if found is None or found.seq >= transport.A_JOB or self.failed:
            found = self._agreed[package, key, told] = transport.agree(self, package, self.members, key=key, job=job)
            self.failed = False
        return found

    def sums(
        self,
        package: str,
        function: str,
        agreed: Agreed,
        *,
        job: Mapping[str, Any] | None = None,
        round_: int = 1,
        arrays: Mapping[str, np.ndarray] | None = None,
        seq: int | None = None,
        tags: Mapping[str, Any] | None = None,
        to: Sequence[int] | None = None,
        e: int = FIRST,
        precision: str = "float64",
        **settings: Any,
    ) -> tuple[Sums, dict[int, Any]]:
        """Ask the members of a job for a sum.

        Args:
            package: the method's import package.
            function: the partial function.
            agreed: the job.
            job: the job as it is sent; None: an ordinary one.
            round_: the round.
            arrays: arrays that are sent.
            seq: number of the request; None: the next one.
            tags: confirmations of keys; None: those that nodes have sent.
            to: which members; None: all.
            e: of the unit of means.
            precision: in which arrays are sent.
            **settings: arguments of the function.

        Returns:
            What was asked for, and the masked answers by organization.
        """
        if seq is None:
            seq = agreed.seq = agreed.seq + 1
        whole = {**(job or self.job(package))}
        whole |= {"key": agreed.key, "aggregation": agreed.mode, "participants": agreed.participants}
        sums = transport.question(package, function, agreed, whole, settings, arrays or {}, seq, e, tags)
        kwargs: dict[str, Any] = {"job": whole, "round": round_, "sums": sums.to_json(), **settings}
        if arrays:
            kwargs["arrays"] = codec.encode(arrays, precision)
        return sums, self.send(package, function, agreed.members if to is None else to, **kwargs)

    def _sum(
        self,
        package: str,
        function: str,
        job: Mapping[str, Any],
        round_: int,
        arrays: dict[str, np.ndarray],
        settings: dict[str, Any],
        key: str | None,
    ) -> Answer:
        """A sum, in the form of the answer of one hospital with all rows."""
        if self.spent:
            raise Refused(self.refusal)
        if self.epsilon:
            return self._noisy_sum(package, function, job, round_, arrays, settings, key)
        if settings.get("statistic") == "moments":
            return self._moments(package, job, settings)
        agreed = self.agreed(package, key, job)
        self._learn_rows(package, function, agreed, job)
        seq = 2 if key else None  # the same job, the same request
        if function == "evaluate" and not job["data"].get("regression"):
            settings = {**settings, "bands": Policy.of_node({}).score_bands}
        products = settings.get("statistic") in ("covariance", "product")
        by_unit = dict[int, dict[str, np.ndarray]]()
        for e in PRODUCTS if products else OF_MEANS[64]:
            asked: dict[str, Any] = {
                "job": job,
                "round_": round_,
                "arrays": arrays,
                "to": self.block,
                "seq": seq,
                "e": e,
            }
            sums, answers = self.sums(package, function, agreed, **asked, **settings)
            nodes, self.failed, found = agreed.opened(sums, answers)
            assert nodes == len(self.block), "masks are left"
            self._check_failed()
            by_unit[e] = found
            if not products and not agreed.wrapped:
                break
            seq = seq and seq + 1
        if products:
            found |= {f"one {name}": transport.climbed(by_unit, name) for name in [settings["statistic"]]}
        return Answer(*transport.answer_of(function, settings, arrays, found))

    def _noisy_sum(
        self,
        package: str,
        function: str,
        job: Mapping[str, Any],
        round_: int,
        arrays: dict[str, np.ndarray],
        settings: dict[str, Any],
        key: str | None,
    ) -> Answer:
        """The same under a budget: one step of a client is asked for as a noisy sum, with least noise."""
        local, one_step = settings.get("local", {}), function == "client_update"
        if one_step:
            function, settings = "noisy_gradient", {}
        elif function == "evaluate":
            settings = {**settings, "evaluate": "held_out", "bands": Policy.of("private").score_bands}
        agreed = self.agreed(package, key, job)
        self._learn_rows(package, function, agreed, job)
        sums, answers = self.sums(
            package,
            function,
            agreed,
            job=job,
            round_=round_,
            arrays=arrays,
            to=self.block,
            seq=2 if key else None,
            **settings,
        )
        nodes, self.failed, found = agreed.opened(sums, answers)
        assert nodes == len(self.block), "masks are left"
        if self.failed and self.plan is not None:
            self.failed, self.spent = False, True
            self.refusal = f"organization {TARGET}: {NOISE_ALONE}"
            raise Refused(self.refusal)
        n = int(found["one n"])
        if function in ("noisy_newton", "noisy_leaf_sums"):
            return Answer({"sums": found["one sums"] / bounded.ROW}, {"n": n})
        if one_step:
            assert self.plan is not None
            total = found["one gradient"] * self.plan.clip / units.GRADIENT
            rate = float(local.get("lr", 0.1))
            return Answer({"weights": arrays["weights"] - rate * total / n, "total": total}, {"n": n})
        if function == "evaluate":
            return Answer({}, {"n": n, "evaluation": transport.read_noisy(found)})
        return Answer(*transport.answer_of(function, settings, arrays, found))

    def _learn_rows(self, package: str, function: str, agreed: Agreed, job: Mapping[str, Any]) -> None:
        """Learn the rows of a block, which weight its means."""
        if function in (*transport.MODEL, "average") and agreed.rows is None:
            asked, counted = self.sums(package, "count_rows", agreed, job=job, to=self.block)
            _, self.failed, found = agreed.opened(asked, counted)
            self._check_failed()
            agreed.rows = int(found["one n"])

    def _check_failed(self) -> None:
        if self.failed:
            raise Failed("some nodes could not compute their part of the sum")

    def _moments(self, package: str, job: Mapping[str, Any], settings: dict[str, Any]) -> Answer:
        """Sums about zero tell the mean; sums about the mean tell the squares."""
        steps = job["data"]["preprocess"]
        width = len(job["data"]["features"])
        for step in steps:
            shapes = step["fitted"].get("shapes", {})
            width = shapes["components"][0] if "components" in shapes else width
        mean: np.ndarray = np.zeros(width)
        agreed, n = self.agreed(package, None, job), 0
        for _ in range(2):
            arrays = {"center": mean}
            sums, answers = self.sums(package, "fit_step", agreed, job=job, arrays=arrays, to=self.block, **settings)
            _, self.failed, opened = agreed.opened(sums, answers)
            self._check_failed()
            found, values = transport.answer_of("fit_step", settings, arrays, opened)
            n = values["n"]
            own = found["first"] / n
            mean, squares = mean + own, found["second"] - n * own**2
        return Answer({**codec.two_parts("mean", mean), "squares": np.maximum(squares, 0)}, {"n": n})

    # ---- what an attacker knows of the data without any trick

    @property
    def features(self) -> list[str]:
        """The columns that are used as features: they are no secret."""
        return [c for c in self.tables[TARGET].columns if c != LABEL and self.tables[TARGET][c].dtype.kind in "fi"]

    def moments(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Mean and deviation of each column (1 if 0), and the number of rows: what ``standardize`` asks for.

        Under a budget, where no noise covers them, what the schema says: the middle and half the width of the bounds.
        """
        if self.epsilon:
            half = np.array([c.upper for c in self.schema.columns if c.name in self.features], np.float64) / 2
            return half, half, sum(map(len, self.tables.values()))
        answer = self.ask("v6_fedavg", "fit_step", statistic="moments")
        deviation = np.sqrt(answer["squares"] / answer.values["n"])
        return codec.whole(answer.arrays, "mean"), np.where(deviation > 0, deviation, 1), answer.values["n"]

    def finest(self) -> int:
        """The column with the most values, which anybody guesses: the one of continuous measurements."""
        return max(range(len(self.features)), key=lambda i: len(np.unique(self.truth[:, i])))

    # ---- what is true

    @property
    def truth(self) -> np.ndarray:
        """The rows (n, d) that an answer is about, the target's first."""
        return np.concatenate([self.tables[k][self.features].to_numpy(np.float64) for k in self.block])

    @property
    def size(self) -> int:
        """How many rows the target has."""
        return len(self.tables[TARGET])

    def own(self, found: Collection[int]) -> int | None:
        """How many of the rows found are the target's; None if all are."""
        return sum(i < self.size for i in found) if len(self.block) > 1 else None

    def found(self, claims: Sequence[np.ndarray] | np.ndarray, unit: str = "rows", **more: Any) -> Outcome:
        """Compare claimed rows with the true ones: a row counts if all of its values are within the tolerance."""
        truth = self.truth
        rows, error = matches(np.asarray(claims).reshape(-1, truth.shape[1]), truth, truth.std(axis=0))
        more = {"own": self.own(rows), **more}
        return Outcome(len(rows), len(truth), unit, self.tasks, len(claims), error, self.last_words(len(rows)), **more)

    def found_values(self, claims: Mapping[str, Sequence[float]], of: int | None = None) -> Outcome:
        """Compare claimed values of columns with the true ones, and with what the same claims find if moved aside."""
        number, error, total, own, chance = 0, 0.0, 0, 0, 0.0
        for column, values in claims.items():
            true = self.truth[:, [self.features.index(column)]]
            claimed, scale = np.asarray(values, np.float64).reshape(-1, 1), true.std(axis=0)
            some, largest = matches(claimed, true, scale, OF_A_VALUE)
            number, error, total = number + len(some), max(error, largest or 0.0), total + len(true)
            own += self.own(some) or 0
            chance += float(np.mean([len(matches(claimed + s * scale, true, scale, OF_A_VALUE)[0]) for s in ASIDE]))
        return Outcome(
            number,
            of or total,
            "values",
            self.tasks,
            sum(map(len, claims.values())),
            error if number else None,
            self.last_words(number),
            own=own if len(self.block) > 1 else None,
            chance=chance,
        )

    def last_words(self, recovered: int) -> str:
        """The refusal that ended an attack, without its prefix; nothing if the attack worked all the same."""
        return "" if recovered else self.refusal.rpartition("organization ")[2].partition(": ")[2]


def matched(claims: np.ndarray, truth: np.ndarray, scale: np.ndarray) -> tuple[int, float | None]:
    """How many true rows are claimed, each once, and the largest error among them in units of ``scale``."""
    found, error = matches(claims, truth, scale)
    return len(found), error


def matches(
    claims: np.ndarray, truth: np.ndarray, scale: np.ndarray, tolerance: float = TOLERANCE
) -> tuple[set[int], float | None]:
    """Which true rows are claimed, each once, and the largest error among them in units of ``scale``."""
    errors, taken = list[float](), set[int]()
    for claim in claims:
        distance = np.abs((truth - claim) / np.where(scale > 0, scale, 1)).max(axis=1)
        for i in np.argsort(distance)[:5]:
            if distance[i] > tolerance:
                break
            if i not in taken:
                taken.add(int(i))
                errors.append(float(distance[i]))
                break
    return taken, max(errors, default=None)


def _rounded_up(x: float) -> float:
    """A number of one digit that is not below; 1 for 0."""
    unit = 10.0 ** np.floor(np.log10(x)) if x > 0 else 1.0
    return float(np.ceil(x / unit) * unit) if x > 0 else 1.0


def nobodys(data: str, rows: int) -> pd.DataFrame:
    """Rows that no hospital has, of those that ``hospitals`` leaves out."""
    table = _table(data)
    return table.iloc[np.random.default_rng(0).permutation(len(table))[rows:]].reset_index(drop=True)


def hospitals(data: str = "breast-cancer", rows: int | None = None) -> Tables:
    """Four hospitals with rows of a table of scikit-learn's, dealt at random; the first is the target.

    Args:
        data: "breast-cancer"; "digits", whose labels are odd and even; or "rare", the first with two columns more.
        rows: rows of all hospitals together; None means all.
    """
    table = _table(data)
    if rows is not None:
        table = table.iloc[np.random.default_rng(0).permutation(len(table))[:rows]]
    dealt = dealing.deal(datasets.Dataset(data, table.reset_index(drop=True)), "iid", 4, 1, None)
    tables = {int(name): part for name, part in dealt.items() if isinstance(part, pd.DataFrame)}
    return _with_rare(tables) if data == "rare" else tables


def _table(data: str) -> pd.DataFrame:
    table = datasets.load("breast-cancer" if data == "rare" else data).rows
    assert isinstance(table, pd.DataFrame)
    if data == "digits":  # two classes, so that few rows are enough for a label
        table = table.assign(**{LABEL: table[LABEL] % 2})
    return table


def _with_rare(tables: Tables) -> Tables:
    """One patient of the target has a village, and a flag, that nobody else has."""
    for part in tables.values():
        part.insert(0, NAME, np.resize(np.array(["Aldorf", "Bedorf", "Cedorf"], dtype=object), len(part)))
        part.insert(1, FLAG, 0)
    tables[TARGET].loc[5, NAME] = RARE
    tables[TARGET].loc[5, FLAG] = 1
    return tables
