"""The federation as a central function sees it: whom to ask, asking, waiting, counting bytes, keeping the history."""

import math
import platform
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import v6_federated
from v6_federated import codec, metrics, models, preprocess, vantage
from v6_federated.data import Spec
from v6_federated.errors import SafeError
from v6_federated.guards import Policy
from v6_federated.node import Job
from v6_federated.randomness import generator
from v6_federated.settings import Common

# function, organizations, job, settings, arrays
Task = tuple[str, list[int], Job, dict[str, Any], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Answer:
    """One node's answer in one round.

    Attributes:
        organization_id: whose node answered.
        n: rows it used.
        arrays: what it sent, by name.
        values: everything else it said.
        bytes_up, bytes_down: of the answer and of the request, as sent.
        function: the partial function that was asked for.
    """

    organization_id: int
    n: int
    arrays: Mapping[str, np.ndarray]
    values: dict[str, Any]
    bytes_up: int
    bytes_down: int
    function: str

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]


def weighted_mean(answers: Sequence[Answer], name: str = "weights") -> np.ndarray:
    """sum over S_t of n_k / m_t times the array ``name``, m_t the rows of S_t (McMahan's erratum); float32.

    Summed in float64 in the order of organization ids, so that the order of arrival changes nothing.
    """
    m_t = sum(a.n for a in answers)
    return combine(answers, name, lambda a: a.n / m_t)


def mean(answers: Sequence[Answer], name: str = "weights") -> np.ndarray:
    """1/|S| times the sum over S of the array ``name``, every node alike; float32."""
    return combine(answers, name, lambda a: 1 / len(answers))


def _named(organizations: list[int]) -> str:
    shown = ", ".join(map(str, organizations[:10])) + (", ..." if len(organizations) > 10 else "")
    return f"organization{'s' if len(organizations) > 1 else ''} {shown}"


def _organization(answer: Answer) -> int:
    return answer.organization_id


def combine(answers: Sequence[Answer], name: str, weight: Callable[[Answer], float]) -> np.ndarray:
    """The sum of the array ``name`` of each answer times its weight, in float64 by ascending id; float32."""
    total = np.zeros(answers[0][name].shape)
    for a in sorted(answers, key=_organization):
        total += np.multiply(a[name], weight(a), dtype=np.float64)
    return total.astype(np.float32)


class Federation:
    """The organizations of a job, and what happened in its rounds.

    Attributes:
        organizations: ids of those that train, ascending.
        model: the model; known once prepared, where the method is supervised.
        features: number of features after preprocessing; known once prepared.
        history: a row a round, as the result has it.
    """

    def __init__(self, client: Any, method: str, settings: Any, supervised: bool = True) -> None:
        common: Common = settings
        present = vantage.organizations(client)
        self.evaluators = sorted(common.evaluators or [])
        self.organizations = sorted(common.organizations or [o for o in present if o not in self.evaluators])
        for name, asked in (("organizations", self.organizations), ("evaluators", self.evaluators)):
            unknown = sorted(set(asked) - set(present))
            if unknown:
                raise SafeError(f"{name}={unknown}: not in the collaboration; expected some of {present}")
            if len(set(asked)) < len(asked):
                raise SafeError(f"{name}={asked} names an organization twice")
        if set(self.organizations) & set(self.evaluators):
            raise SafeError(f"evaluators={self.evaluators} train as well; expected other organizations")
        if not self.organizations:
            raise SafeError("no organization is left to train; expected at least one that is not an evaluator")
        Policy.of_node().check_participants(len(self.organizations))
        self._client, self._method, self._settings, self._common = client, method, settings, common
        self._job = Job(
            method=method,
            key=uuid.uuid4().hex,
            seed=common.seed,
            participants=self.organizations,
            evaluators=self.evaluators,
            rounds=getattr(settings, "rounds", None),
            model=None,
            data=Spec(
                common.label,
                common.features,
                common.classes if supervised else None,
                common.holdout if supervised else 0.0,  # nothing is evaluated on rows held out
                [],
                supervised=supervised,
            ),
            minimum_rows=common.minimum_rows,
            precision=common.precision,
        )
        models.parse(common.model)  # a wrong name is refused before any node is asked
        self.model: models.Model
        self.features: int
        self.history: list[dict[str, Any]] = []
        self._per_node: list[dict[str, Any]] = []
        self._preparation = {"bytes_up": 0, "bytes_down": 0}
        self._evaluation_bytes = {"bytes_up": 0, "bytes_down": 0}
        self._round, self._last_evaluated, self._shown = 0, 0, 0
        self._stateful = False
        self._fitted: Sequence[dict[str, Any]] = []  # in full, where the job's tasks only name them
        self._generators: dict[tuple[str, int], np.random.Generator] = {}
        self._started = time.monotonic()

    # ---- what a method calls, in the order in which it does

    def prepare(self) -> None:
        """Ask all nodes to describe their data; agree on classes and scaling; build the model. Round 0."""
        steps = [preprocess.parse(step) for step in self._common.preprocess]
        answers = self._collect([("describe", self.organizations, self._job, {"raw": bool(steps)}, {})])
        self.count_preparation(answers)
        features, spec = _same_features(answers), self._job.data
        if spec.classes is None and spec.supervised:
            spec = replace(spec, classes=_agreed_classes(answers))
        if spec.features is None and isinstance(features, list):
            spec = replace(spec, features=features, label=answers[0].values["label"])  # one order at all nodes
        names = features if isinstance(features, list) else [str(i) for i in range(features)]
        if steps and isinstance(features, list):
            told = {a.organization_id: a.values["kinds"] for a in answers}
            spec = replace(spec, categories=preprocess.categories(steps, told, names))
        self._job = replace(self._job, data=spec)
        self.features = self._fit(steps, preprocess.layout(names, spec.categories or ()))
        if spec.supervised:
            assert spec.classes is not None
            full = {**models.parse(self._common.model), "features": self.features, "classes": len(spec.classes)}
            self.model = models.build(full)
            self._job = replace(self._job, model=full)
            self._hand_over()

    def _hand_over(self) -> None:
        """Send large fitted steps once, for the nodes to keep; from then on tasks only name them."""
        steps = self._job.data.preprocess
        large = [step for step in steps if codec.size(step) >= preprocess.LARGE]
        if not large:
            return
        self._fitted = steps
        self.keep_state()
        job = replace(self._job, data=replace(self._job.data, preprocess=large))
        tasks: list[Task] = [("keep_steps", self.organizations, job, {}, {})]
        if self.evaluators:
            job = replace(job, data=replace(job.data, holdout=0.0))
            tasks.append(("keep_steps", self.evaluators, job, {}, {}))
        self.count_preparation(self._collect(tasks))
        named = [preprocess.reference(step) if step in large else step for step in steps]
        self._job = replace(self._job, data=replace(self._job.data, preprocess=named))

    def _fit(self, steps: Sequence[preprocess.Step], layout: preprocess.Features) -> int:
        """Fit the steps in order, each on rows that the ones before have been applied to; returns the features left."""

        def ask(statistic: str, precision: str = "float64", **arguments: Any) -> list[Answer]:
            answers = self.statistic(statistic, precision, **arguments)
            self.count_preparation(answers)
            return answers

        try:
            for step in steps:
                fitted = {"step": step.name, "fitted": step.fit(layout, ask)}
                layout = preprocess.apply(layout, [fitted])
                done = [*self._job.data.preprocess, fitted]
                self._job = replace(self._job, data=replace(self._job.data, preprocess=done))
            layout.check_complete()
        except vantage.DataError as error:  # the request's steps do not fit the columns
            raise SafeError(str(error)) from None
        return len(layout.names)

    def statistic(self, statistic: str, precision: str = "float64", **arguments: Any) -> list[Answer]:
        """A statistic of all nodes' rows, see ``preprocess.statistic``, in a precision of its own."""
        arrays = {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)}
        settings = {"statistic": statistic, **{k: v for k, v in arguments.items() if k not in arrays}}
        return self._collect(
            [("fit_step", self.organizations, replace(self._job, precision=precision), settings, arrays)]
        )

    def initial_weights(self) -> np.ndarray:
        """w_0 (d,), from the job's seed."""
        return self.model.init(generator(self._job.seed, "init"))

    def rounds(self, rounds: int) -> Iterator[int]:
        """t = 1, 2, ... until ``rounds``, or until an evaluation has reached the target."""
        for self._round in range(1, rounds + 1):
            self._started = time.monotonic()
            yield self._round
            accuracies = [row["accuracy"] for row in self.history]
            if self._common.target and any(a is not None and a >= self._common.target for a in accuracies):
                return

    def sample(self, fraction: float) -> list[int]:
        """S_t: a random set of m = max(floor(C K), 1) organizations, ascending."""
        K = len(self.organizations)
        m = max(math.floor(fraction * K + 1e-9), 1)  # 0.29 * 100 is a little less than 29
        if m == K:
            return list(self.organizations)
        rng = generator(self._job.seed, "sample", 0, self._round)
        return sorted(rng.choice(self.organizations, m, replace=False).tolist())

    def ask(self, function: str, organizations: Sequence[int], **arguments: Any) -> list[Answer]:
        """Call a partial function at ``organizations``; return their answers by ascending id. See ``ask_groups``."""
        return self.ask_groups(function, [(organizations, arguments)])

    def ask_groups(self, function: str, groups: Sequence[tuple[Sequence[int], dict[str, Any]]]) -> list[Answer]:
        """Call a partial function at groups of organizations, each with arguments of its own, all at once.

        Arrays among the arguments travel as payload. An array named ``weights`` is the global model: as the nodes have
        it in hand, they evaluate it in passing, which makes up the history's row of the round before.
        Raises CollectResultsError that names every organization that gave no good answer, and why.
        """
        tasks: list[Task] = []
        for organizations, arguments in groups:
            arrays = {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)}
            settings = {k: v for k, v in arguments.items() if k not in arrays}
            tasks.append((function, list(organizations), self._job, settings, arrays))
        evaluate = len(tasks) == 1 and "weights" in tasks[0][4] and self._due()
        if evaluate and self.evaluators:
            # first, since a benchmark's test set takes longest
            tasks.insert(0, self._evaluation(tasks[0][4]["weights"]))
        elif evaluate and (rest := sorted(set(self.organizations) - set(tasks[0][1]))):
            # a curve of whoever happens to be asked would jump from round to round
            tasks.append(("evaluate", rest, self._job, {}, {"weights": tasks[0][4]["weights"]}))
        answers = self._collect(tasks, evaluate=evaluate)
        if evaluate:
            self._record_evaluation(self._round - 1, answers)
        asked = {organization for organizations, _ in groups for organization in organizations}
        return sorted((a for a in answers if a.organization_id in asked), key=_organization)

    def evaluate(self, weights: np.ndarray) -> None:
        """Evaluate the model of the round before at all nodes, where no ``ask`` has done so in passing."""
        if self._due():
            self._record_evaluation(self._round - 1, self._collect([self._evaluation(weights)], evaluate=True))

    def generator(self, purpose: str) -> np.random.Generator:
        """Random numbers for one purpose of central; one stream a round, kept as it goes on within the round."""
        key = (purpose, self._round)
        if key not in self._generators:
            self._generators = {key: generator(self._job.seed, purpose, 0, self._round)}
        return self._generators[key]

    def record(self, answers: Sequence[Answer], model: np.ndarray | None = None, **columns: Any) -> None:
        """Keep the round, of which ``answers`` are all: one row of history with ``columns``, one row a node.

        With the round's new ``model`` (d,), a node's row holds the distance from it of the weights that the node sent.
        """
        nodes = sorted({a.organization_id for a in answers})
        trained = [a for a in answers if a.values.get("train_loss") is not None]
        rows = sum(a.n for a in trained)
        self.history.append(
            {
                "round": self._round,
                "participants": nodes,
                "n": sum({a.organization_id: a.n for a in answers}.values()),
                "train_loss": sum(a.n * a.values["train_loss"] for a in trained) / rows if rows else None,
                "loss": None,
                "accuracy": None,
                "auc": None,
                "evaluated": 0,
                "bytes_up": sum(a.bytes_up for a in answers),
                "bytes_down": sum(a.bytes_down for a in answers),
                "seconds": round(time.monotonic() - self._started, 6),
                **columns,
            }
        )
        for a in sorted(answers, key=_organization):
            row: dict[str, Any] = {"round": self._round, "organization_id": a.organization_id, "n": a.n}
            if model is not None and "weights" in a.arrays:
                row["distance"] = float(np.linalg.norm(a["weights"] - model))
            self._per_node.append(row | dict(a.values) | {"bytes_up": a.bytes_up, "bytes_down": a.bytes_down})
        if not self._job.data.supervised:  # no evaluation is to come
            self._show(len(self.history))

    def result(self, weights: np.ndarray) -> dict[str, Any]:
        """Evaluate the last model at all nodes and return the job's result."""
        self._round = len(self.history) + 1
        last = self.history[-1]["round"] if self.history else 0
        answers = self._collect([self._evaluation(weights)], evaluate=True)
        final = self._record_evaluation(last, answers)
        assert self._job.model is not None
        return self.finished(codec.encode({"weights": weights}), self._job.model, final)

    def finished(self, weights: dict[str, Any], model: dict[str, Any], final: dict[str, Any]) -> dict[str, Any]:
        """The job's result, from the payload of what was learned, the model's spec and the last evaluation."""
        try:
            self.forget()
            left = None
        except vantage.CollectResultsError as error:  # a finished model is not lost for it
            left = str(error)
        return {
            "method": self._method,
            "settings": self._settings.model_dump(mode="json"),
            "organizations": self.organizations,
            "weights": weights,
            "model": model,
            "data": {**self._job.to_json()["data"], "preprocess": self._fitted or self._job.data.preprocess},
            "history": self.history,
            "per_node": self._per_node,
            "final": final,
            **({"state_left": left} if left else {}),
            "traffic": {"preparation": self._preparation, "evaluation": self._evaluation_bytes},
            "versions": {
                "v6-federated": v6_federated.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }

    def job(self) -> dict[str, Any]:
        """What every task of the job tells the nodes, for a task that a researcher sends later with the result."""
        return self._job.to_json()

    def count_preparation(self, answers: Sequence[Answer]) -> None:
        """Add what a method asked before its first round to the bytes of the preparation."""
        for key in self._preparation:
            self._preparation[key] += sum(getattr(a, key) for a in answers)

    def keep_state(self) -> None:
        """From now on nodes keep state between rounds; it is removed when the job ends, well or not."""
        self._stateful = True

    def forget(self) -> None:
        """Have the nodes remove what they keep for this job."""
        if self._stateful:
            self._stateful = False
            self._collect([("forget", sorted([*self.organizations, *self.evaluators]), self._job, {}, {})])

    # ---- tasks and answers

    def _due(self) -> bool:
        """Whether the model before this round is still to be evaluated (the initial model is not)."""
        t = self._round - 1
        return t > self._last_evaluated and t % self._common.evaluate_every == 0

    def _evaluation(self, weights: np.ndarray) -> "Task":
        who, job = (self.evaluators, self._evaluators_job()) if self.evaluators else (self.organizations, self._job)
        return "evaluate", who, job, {}, {"weights": weights}

    def _evaluators_job(self) -> Job:
        return replace(self._job, data=replace(self._job.data, holdout=0.0))

    def _collect(self, tasks: Sequence[Task], evaluate: bool = False) -> list[Answer]:
        """Send the tasks, wait for all, and check and decode every answer; ascending ids within a task."""
        sent = []
        for function, organizations, job, settings, arrays in tasks:
            arguments: dict[str, Any] = {"job": job.to_json(), "round": self._round, **settings}
            if evaluate and job.data.holdout == 0 and organizations == self.evaluators:
                arguments["evaluate"] = "all"
            elif evaluate and not self.evaluators:
                arguments["evaluate"] = "held_out"
            if arrays:
                arguments["arrays"] = codec.encode(arrays, job.precision)
            size = codec.size({"method": function, "kwargs": arguments})
            name = f"{self._method} {function}, round {self._round}"
            sent.append((vantage.create_task(self._client, function, arguments, organizations, name), size))
        answers = []
        for (task_id, size), (function, organizations, _, _, arrays) in zip(sent, tasks, strict=True):
            vantage.wait(self._client, task_id)
            found = [self._decode(result, function, size, arrays) for result in vantage.results(self._client, task_id)]
            ids = [a.organization_id for a in found]
            missing = sorted(set(organizations) - set(ids))
            if missing:
                self._explain_missing(task_id, function, missing)
            if sorted(ids) != sorted(organizations):
                raise vantage.CollectResultsError(
                    f"round {self._round}, {function}: answers from organizations {sorted(ids)}, "
                    f"expected one each from {sorted(organizations)}"
                )
            answers += sorted(found, key=_organization)
        return answers

    def _decode(self, result: Any, function: str, size: int, asked: Mapping[str, np.ndarray]) -> Answer:
        if not isinstance(result, dict) or not isinstance(result.get("organization_id"), int):
            raise vantage.CollectResultsError(f"round {self._round}: an answer without organization_id")
        organization, n = result["organization_id"], result.get("n")
        who = f"round {self._round}: organization {organization}"
        if not isinstance(n, int) or (n <= 0 and function != "forget"):
            raise vantage.CollectResultsError(f"{who} answers n={n!r}; expected the rows it used, at least 1")
        try:
            arrays = codec.decode(result["arrays"]) if "arrays" in result else {}
        except SafeError as error:
            raise vantage.CollectResultsError(f"{who} sends what cannot be used: {error}") from None
        for name, array in arrays.items():
            if name in asked and array.shape != asked[name].shape:
                raise vantage.CollectResultsError(
                    f"{who} sends {name} of shape {array.shape}; expected {asked[name].shape}"
                )
        values = {k: v for k, v in result.items() if k not in ("organization_id", "n", "arrays")}
        return Answer(organization, n, arrays, values, codec.size(result), size, function)

    def _explain_missing(self, task_id: int, function: str, missing: list[int]) -> None:
        failures = vantage.failures(self._client, task_id)
        reasons: dict[str, list[int]] = {}
        for organization in [k for k in missing if k in failures] or missing:  # the others may still be at work
            status, line = failures.get(organization, ("no result", ""))
            reason = line.removeprefix(f"organization {organization}: ") or f"run {status}"
            reasons.setdefault(reason, []).append(organization)
        told = [f"{_named(who)}: {reason}" for reason, who in reasons.items()]
        more = f"; and {len(told) - 3} other reasons" if len(told) > 3 else ""
        raise vantage.CollectResultsError(f"round {self._round}, {function}: {'; '.join(told[:3])}{more}")

    def _record_evaluation(self, round_: int, answers: Sequence[Answer]) -> dict[str, Any]:
        """Put the evaluation that came with ``answers`` into the row of ``round_``."""
        counted = [a for a in answers if a.organization_id in self.evaluators] if self.evaluators else answers
        found = metrics.combine([a.values.get("evaluation", {}) for a in counted])
        for a in answers:
            a.values.pop("evaluation", None)
            if a.function == "evaluate":
                self._evaluation_bytes["bytes_up"] += a.bytes_up
                self._evaluation_bytes["bytes_down"] += a.bytes_down
        self._last_evaluated = round_
        for row in self.history:
            if row["round"] == round_:
                row.update({key: found[key] for key in ("loss", "accuracy", "auc", "evaluated")})
        self._show(round_)
        return found

    def _show(self, until: int) -> None:
        for row in self.history[self._shown : until]:
            vantage.progress(self._client, row)
        self._shown = max(self._shown, until)


def _same_features(answers: Sequence[Answer]) -> Any:
    """The features, if all nodes have the same ones. Columns in another order are the same."""
    first = answers[0]
    for a in answers[1:]:
        mine, other = first.values["features"], a.values["features"]
        if (sorted(mine) != sorted(other)) if isinstance(mine, list) and isinstance(other, list) else mine != other:
            raise vantage.CollectResultsError(
                f"organizations {first.organization_id} and {a.organization_id} hold different features; "
                "expected the same columns at all nodes: name them in `features`"
            )
        if first.values["label"] != a.values["label"]:
            raise vantage.CollectResultsError(
                f"organizations {first.organization_id} and {a.organization_id} have another last column; "
                "name the label's column in `label`"
            )
    return first.values["features"]


def _agreed_classes(answers: Sequence[Answer]) -> list[Any]:
    """The union of the label values that nodes name, sorted."""
    union = {value for a in answers for value in a.values["classes"]}
    if len({isinstance(value, str) for value in union}) > 1:
        raise vantage.CollectResultsError("labels are words at some nodes and numbers at others; expected one kind")
    if len(union) < 2:
        raise vantage.CollectResultsError(
            f"the nodes name {len(union)} class(es) of the label, expected at least 2 that some node has in 3 rows or "
            "more; name them all in `classes`"
        )
    if len(union) > 1000:
        raise vantage.CollectResultsError(f"the label has {len(union)} values; expected classes, not a measurement")
    return sorted(union)
